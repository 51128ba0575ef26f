"""The stage of a seed: its database, its processes and their deaths, and the table at the end.

A seed is a module with an app `ol` (of $OUTLAST_URL) and a function `play(stage)`. Run as a program
it calls `stage.main("its name", …)`, which chooses the database, imports the module again by its
name, plays it, prints what was seen, and exits with 0 only if everything held that must hold.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import secrets
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from inside import FOLDER, SCHEMA, URL, folder, notes, on_sqlite, query
from processes import Process, answers

PLAY_S = 40.0  # a play that is not over by then is stuck; more by --limit, on a busy machine


class Stuck(Exception):
    """A condition did not come true in time."""


class Stage:
    """One run of a seed."""

    def __init__(self, program: str, options: argparse.Namespace) -> None:
        self.program, self.options = program, options
        self.random = random.Random(options.seed)
        self.began = time.monotonic()
        self.kills: Counter[str] = Counter()
        self.figures: dict[str, object] = {}
        self.broken: list[str] = []
        self._processes: list[Process] = []

    # Processes

    def start(self, name: str, *command: object, **env: str) -> Process:
        process = Process(name, [str(word) for word in command], env)
        self._processes.append(process)
        return process

    def worker(self, name: str = "worker", *flags: object, **env: str) -> Process:
        """`outlast worker` of this seed's app."""
        words = ("-m", "outlast", "worker", f"{self.program}:ol", *flags)
        return self.start(name, sys.executable, *words, **env)

    def redis(self, port: int) -> Process:
        """A Redis of its own. What it has answered is on disk."""
        where = ("--bind", "127.0.0.1", "--port", port, "--dir", folder())
        safe = ("--save", "", "--appendonly", "yes", "--appendfsync", "always")
        server = self.start("redis", "redis-server", *where, *safe)
        self.wait(lambda: answers(port), "redis-server answers")
        return server

    # Deaths

    def chosen(self, kill: str) -> bool:
        """Whether `--kill` names it; without `--kill`, all are chosen."""
        return not self.options.kill or kill in self.options.kill

    def die_at(self, point: str, *processes: Process, act: Callable[[], Any] = int) -> float:
        """Arm a named point, act, and wait until one of the processes has died there: when. It is
        restarted; a process that the act returns is not."""
        armed = folder() / f"kill {point}"
        armed.touch()
        started = act()
        self.wait(lambda: not armed.exists(), f"a process is killed {point}")
        victims = [started] if isinstance(started, Process) else processes
        if victims:
            self.wait(lambda: not all(one.alive for one in victims), f"it is dead, {point}", 5.0)
        self.kills[point] += 1
        self.revive(*processes)
        return float(notes("deaths")[-1][0])

    def kill(self, process: Process, why: str = "random") -> None:
        process.kill()
        self.kills[why] += 1

    def revive(self, *processes: Process) -> None:
        """As a service manager does."""
        for process in processes:
            if not process.alive:
                process.restart()

    def kill_until(
        self, done: Callable[[], Any], *victims: Process, every: float = 1.0, kills: int = 12
    ) -> None:
        """Wait until it is done. Meanwhile SIGKILL processes at random times, and restart them."""
        for _ in range(kills):
            with suppress(Stuck):
                return self.wait(done, "done", self.random.uniform(0.2, 1.8) * every)
            self.wait(lambda: done() or any(one.ready for one in victims), "a process is up")
            if ready := [one for one in victims if one.ready]:
                self.kill(victim := self.random.choice(ready))
                victim.restart()
        return self.wait(done, "all is done in spite of the kills")

    # Conditions

    def left(self) -> float:
        """Seconds until the end of the play."""
        return float(self.began + self.options.limit - time.monotonic())

    def wait(self, condition: Callable[[], Any], what: str, timeout: float = 1e9) -> None:
        """Until it is true; `Stuck` after the timeout."""
        deadline = time.monotonic() + min(timeout, self.left())
        while not condition():
            if time.monotonic() > deadline:
                raise Stuck(what)
            time.sleep(0.02)

    # Figures

    def show(self, name: str, value: object) -> None:
        self.figures[name] = value

    def equal(self, name: str, value: object, wanted: object) -> None:
        self.show(name, value)
        if value != wanted:
            self.broken.append(f"{name}: {value}, and must be {wanted}")

    def at_most(self, name: str, value: float, limit: float) -> None:
        self.show(name, value)
        if value > limit:
            self.broken.append(f"{name}: {value}, and must be at most {limit}")

    def report(self) -> int:
        """Print what was seen; the exit code."""
        told: dict[str, Any] = {"program": self.program, "seed": self.options.seed}
        told["store"] = "sqlite" if on_sqlite() else "postgresql"
        told["seconds"] = round(time.monotonic() - self.began, 1)
        if self.options.json:
            seen = {"kills": dict(self.kills), "figures": self.figures, "broken": self.broken}
            print(json.dumps(told | seen))
        else:
            print(*(f"{name} {value}" for name, value in told.items()), sep=", ")
            for name, number in self.kills.items():
                print(f"  accident: {name:<40}{number:>10}")
            for name, value in self.figures.items():
                print(f"  {name:<50}{value!s:>10}")
            print("\n".join(f"BROKEN {one}" for one in self.broken) or "all of it held")
        return 1 if self.broken else 0

    def end(self) -> None:
        for process in self._processes:
            process.kill()


def main(program: str, kills: Sequence[str], **arguments: dict[str, Any]) -> NoReturn:
    """Play a seed. `kills` are the values of `--kill`, `arguments` more options of argparse."""
    parser = argparse.ArgumentParser(description=sys.modules["__main__"].__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    url = os.environ.pop("SEED_URL", None)  # of a runner that shows no password in arguments
    parser.add_argument("--url", default=url, help="a PostgreSQL; default: a temporary SQLite file")
    parser.add_argument("--seed", type=int, default=1, help="of the random numbers")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--kill", action="append", choices=kills, help="only this; repeatable")
    parser.add_argument("--limit", type=float, default=PLAY_S, help="seconds; default: %(default)g")
    for name, given in arguments.items():
        parser.add_argument(f"--{name}", **given)
    options = parser.parse_args()
    where = Path(tempfile.mkdtemp(prefix=f"outlast-{program}-"))
    os.environ |= {FOLDER: str(where), URL: options.url or f"sqlite:///{where / 'seed.db'}"}
    path = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ |= {SCHEMA: f"seed_{secrets.token_hex(4)}", "PYTHONPATH": os.pathsep.join(path)}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    stage, code = Stage(program, options), 1
    try:
        import_module(program).play(stage)
    except Stuck as error:
        stage.broken.append(f"never happened: {error}")
    except BaseException as error:  # a signal as well: what was interrupted has not held
        traceback.print_exc()
        stage.broken.append(repr(error))
    finally:
        stage.end()
        code = stage.report()
        if not on_sqlite():
            query(f"DROP SCHEMA IF EXISTS {os.environ[SCHEMA]} CASCADE")
        shutil.rmtree(where) if not code else print(f"see {where}", file=sys.stderr)
    sys.exit(code)
