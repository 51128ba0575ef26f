"""Blobs and processes: workers of the command line, handlers that are isolated."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from outlast import Outlast
from tests.support import Database, Processes

from .keeping import BRIEF, files

SOURCE = """
import os
from outlast import Context, Outlast

ol = Outlast(os.environ["URL"])

@ol.task(isolated=True)
def shout(text: str, ctx: Context) -> str:
    ctx.enqueue(count.job(text))
    return text.upper()

@ol.task
def count(text: str) -> int:
    return len(text)
"""


@pytest.mark.slow
@pytest.mark.kinds("sqlite")
def test_worker_processes_are_told_where_blobs_are(
    database: Database, processes: Processes, tmp_path: Path
) -> None:
    """R168: by --blobs, a supervisor's children and the process of an isolated handler too. The
    command line shows how large it is, and removes it, if it is told."""
    folder, code = tmp_path / "blobs", tmp_path / "code"
    code.mkdir()
    (code / "shouting.py").write_text(SOURCE)
    blobs = f"file://{folder}"
    worker = processes.python(
        "outlast", "worker", "shouting:ol", "--blobs", blobs, "--processes", "2",
        env={"URL": database.url, "PYTHONPATH": str(code)}, cwd=code,
    )  # fmt: skip
    text = "many words " * 1_000_000  # 11 MB
    with Outlast(database.url, settings=BRIEF, blobs=blobs) as ol:

        @ol.task
        def shout(text: str) -> None: ...

        job = shout.enqueue(text)
        assert ol.result(job.id, timeout=60) == text.upper()
        [counted] = ol.jobs(task="count")
        assert ol.result(counted.id, timeout=30) == len(text)
        assert len(files(folder)) == 3
    env: dict[str, str | None] = {"OUTLAST_URL": database.url, "OUTLAST_BLOBS": blobs}
    shown = processes.python("outlast", "job", job.id, env=env).succeed(30.0)
    assert "11,000,011 bytes, stored by reference (SHA-256 " in shown
    assert "11,000,002 bytes, stored by reference (SHA-256 " in shown
    told = json.loads(processes.python("outlast", "job", job.id, "--json", env=env).succeed(30.0))
    assert told["args"]["outlast:blob"]["bytes"] == 11_000_011
    ended = "--state", "succeeded", "--yes"
    processes.python("outlast", "purge", *ended, env=env).succeed(30.0)
    assert files(folder) == []
    worker.terminate()
    assert worker.wait(30.0) == 0
