"""Workers under a supervisor, as with `outlast worker --processes`: fresh interpreters.

`python -m outlast.verify.supervised SCHEMA FOLDER SETTINGS` is one of them, with its database in
OUTLAST_URL: other users can read the arguments of a process, and a URL may hold a password.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
from pathlib import Path

from ..worker.child_reaper import ChildReaper
from ..worker.supervisor import supervise
from .worker_settings import CampaignWorkerOptions
from .workload import Workload
from .workspace import Workspace

WORKER_PROCESSES = 2


def run_supervisor(work: Workload, settings: CampaignWorkerOptions, number: int) -> None:
    """In a child: become the supervisor."""
    faulthandler.cancel_dump_traceback_later()
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))  # until it has started
    workspace, module = work.workspace, "outlast.verify.supervised"
    arguments = [workspace.schema, str(workspace.folder), json.dumps(settings)]
    here = str(Path(__file__).parents[2])
    paths = [part for part in (here, os.environ.get("PYTHONPATH")) if part]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)  # this package
    os.environ["OUTLAST_URL"] = workspace.url
    reaper = ChildReaper(work.ol.store)
    code = supervise(
        [sys.executable, "-m", module, *arguments],
        WORKER_PROCESSES,
        settings["grace"] or 0.0,
        reaper,
    )
    work.ol.close()
    if code:
        raise RuntimeError("a worker had to be killed: it did not drain in time")


def workers_of(supervisor: int) -> list[int] | None:
    """The current children of a supervisor; None where the system cannot list them."""
    if not Path("/proc/self/task").exists():
        return None
    children = Path(f"/proc/{supervisor}/task/{supervisor}/children")
    try:
        return [int(pid) for pid in children.read_text().split()]
    except OSError:
        return []


def main(schema: str, folder: str, settings: str) -> None:
    work = Workload(Workspace(os.environ["OUTLAST_URL"], schema, Path(folder)))
    work.ol.worker(**json.loads(settings)).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
