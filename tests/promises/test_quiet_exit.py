"""Nothing is left open at the end: Python's development mode is silent, with warnings as errors."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.support import Database, Process, Processes, eventually

NOISE = re.compile(
    r"Warning:|Exception ignored|Traceback|never awaited|Event loop is closed|leaked"
)
PATIENCE_S = 60.0

PLAIN = """
import asyncio, threading
from outlast import Context, Outlast

ol = Outlast()

@ol.task
def add(a: int) -> int:
    return a + 1

@ol.task
async def aadd(a: int) -> int:
    return a + 1

@ol.task
def complete(a: int, ctx: Context) -> None:
    with ctx.completing(a) as conn:
        conn.execute("SELECT 1")

if __name__ == "__main__":
    add.enqueue(1)
    ol.counts()

    async def main():
        async with ol.worker(concurrency=4):
            await ol.aresult((await aadd.aenqueue(1)).id, timeout=50)
            await ol.aresult((await complete.aenqueue(1)).id, timeout=50)
            await asyncio.to_thread(ol.result, add.enqueue(2).id, timeout=50)

    asyncio.run(main())
    for _ in range(2):
        thread = threading.Thread(target=lambda: asyncio.run(ol.acounts()))
        thread.start()
        thread.join()
    print("done")
"""


def strict(processes: Processes, database: Database, folder: Path, *command: str) -> Process:
    (folder / "app.py").write_text(PLAIN)
    env = {"OUTLAST_URL": database.url, "OUTLAST_SCHEMA": database.schema}
    words = [sys.executable, "-X", "dev", "-W", "error", *command]
    return processes.run(*words, env=env, cwd=folder)


def test_a_script_that_closes_nothing_ends_without_a_word(
    database: Database, processes: Processes, tmp_path: Path
) -> None:
    script = strict(processes, database, tmp_path, "app.py")
    output = script.succeed(PATIENCE_S)
    assert "done" in output
    assert not NOISE.search(output), output


@pytest.mark.kinds("postgres")
@pytest.mark.parametrize("command", ["worker", "serve"])
def test_a_command_that_is_told_to_stop_leaves_nothing_open(
    database: Database, processes: Processes, tmp_path: Path, command: str
) -> None:
    more = ["--port", "0"] if command == "serve" else ["--metrics-port", "0"]
    running = strict(processes, database, tmp_path, "-m", "outlast", command, "app:ol", *more)
    begun = "Uvicorn running" if command == "serve" else "metrics and health on"
    eventually(lambda: begun in running.output(), PATIENCE_S, message=running.output)
    running.terminate()
    assert running.wait(PATIENCE_S) == 0, running.output()
    assert not NOISE.search(running.output()), running.output()
