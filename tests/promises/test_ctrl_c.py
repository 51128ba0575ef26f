"""What a Ctrl-C in a terminal means: it reaches every process there, and costs no job anything."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from outlast import Outlast
from tests.support import Processes, eventually

APP = """
import time
from outlast import Context, Outlast, Retry

ol = Outlast()

@ol.task(isolated=True, retry=Retry(max_attempts=1))
def slow(ctx: Context) -> str:
    ctx.progress(1)
    time.sleep(1.5)
    return "done"

if __name__ == "__main__":
    ol.worker().run()
"""


def test_a_ctrl_c_lets_an_isolated_job_end(processes: Processes, tmp_path: Path) -> None:
    """R182: the worker drains; its child does not take the signal for its own."""
    (tmp_path / "app.py").write_text(APP)
    url = f"sqlite:///{tmp_path}/jobs.db"
    enqueue = "import app\nprint(app.slow.enqueue().id)\n"
    id = processes.python(enqueue, env={"OUTLAST_URL": url}).succeed().strip()
    worker = processes.python(tmp_path / "app.py", env={"OUTLAST_URL": url})
    with Outlast(url) as ol:
        eventually(lambda: ol.history(id)[1], timeout=20, message=worker.output)
        os.killpg(worker.pid, signal.SIGINT)
        said = worker.succeed(timeout=20)
        assert ol.result(id, timeout=1) == "done", said
        assert "Fatal Python error" not in said
