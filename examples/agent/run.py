"""Play the agent to its end while its workers are killed, and print what happened.

    python run.py                      kill each worker that runs the agent after about two seconds
    python run.py --kill-every 0       kill nobody
    python run.py --by-hand            you are the manager: open the link, and press a button
    python run.py --serve              afterwards, serve the page until Ctrl-C

It starts the stand-in of a model provider, the page and two workers, on loopback, with its files
in a temporary folder. For a real provider, set OPENAI_BASE_URL, OPENAI_API_KEY and AGENT_MODEL.
It exits with 0 only if the agent has finished, each effect took place once, the approval was taken
once, and a reader of the stream got every token of every turn, without gap or repeat.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from play import Play, start

REQUEST = "My lamp of order 1001 came broken. Please give me my money back."


def main() -> int:
    options = parsed()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="agent-")))
        model, web = free_port(), free_port()
        os.environ["SHOP_DB"] = str(folder / "shop.db")
        os.environ["OUTLAST_PUBLIC_URL"] = f"http://127.0.0.1:{web}"
        os.environ["OUTLAST_URL"] = options.url or f"sqlite:///{folder / 'agent.db'}"
        if "OPENAI_BASE_URL" not in os.environ:
            address = f"http://127.0.0.1:{model}/v1"
            os.environ |= {"OPENAI_BASE_URL": address, "OPENAI_API_KEY": "none"}
            stack.callback(start("model_server.py", str(model)).kill)
        served = ("-m", "uvicorn", "web:app", "--port", str(web), "--log-level", "error")
        stack.callback(start(*served).kill)
        return played(options, web)


def played(options: argparse.Namespace, web: int) -> int:
    from agent import agent, ol  # with the environment of this run

    wait_for_port(web)
    job = agent.enqueue(customer="ada", request=REQUEST)
    print(f"page: http://127.0.0.1:{web}/agents/{job.id}", flush=True)
    play = Play(ol, job, options)
    play.run()
    seen = play.report()
    print(json.dumps(seen) if options.json else table(seen), flush=True)
    if options.serve:
        threading.Event().wait()
    return 1 if seen["broken"] else 0


def table(seen: dict[str, Any]) -> str:
    figures = {name: value for name, value in seen.items() if not isinstance(value, list)}
    lines = [f"  {name:<40}{value}" for name, value in figures.items()]
    broken = [f"BROKEN {one}" for one in seen["broken"]]
    return "\n".join(["\n", *lines, *(broken or ["all of it held"])])


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--url", help="a PostgreSQL; default: a temporary SQLite file")
    parser.add_argument("--kill-every", type=float, default=2.0, help="seconds; 0: never")
    parser.add_argument("--kills", type=int, default=10**9, help="kill at most so often")
    parser.add_argument("--by-hand", action="store_true", help="wait for you to approve")
    parser.add_argument("--serve", action="store_true", help="serve the page after the end")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    return parser.parse_args()


def free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for_port(port: int) -> None:
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.05)


if __name__ == "__main__":
    sys.exit(main())
