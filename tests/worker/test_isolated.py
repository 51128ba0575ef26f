"""Handlers in processes of their own, which can be killed."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from outlast import Outlast
from outlast.model.schedule import tick_of_key
from tests.support import Database, Processes, aeventually, eventually
from tests.support.processes import alive

from .working import SLACK, TIMINGS, ended, work

SOURCE = '''
import os, signal, sys, time
from pathlib import Path
from outlast import Context, Outlast, Permanent, Retry
from outlast.ops.streams import stream_tail

ol = Outlast(os.environ["ISOLATED_URL"], schema=os.environ["ISOLATED_SCHEMA"])
once = Retry(max_attempts=1)

@ol.task
async def follow_up(n: int) -> int:
    return n

@ol.task(isolated=True)
def speaks(n: int, ctx: Context) -> dict:
    ctx.progress(1, 2, "half-way")
    ctx.log("pid", pid=os.getpid())
    ctx.enqueue(follow_up.job(n), follow_up.job(n + 1))
    return {"pid": os.getpid(), "attempt": ctx.attempt, "fence": ctx.fence, "big": "x" * 900_000}

@ol.task(isolated=True)
def ticks(ctx: Context) -> str:
    return str(ctx.tick)

@ol.task(isolated=True, retry=once)
def dies(number: int) -> None:
    os.kill(os.getpid(), number)

@ol.task(isolated=True, retry=once)
def exits(code: int) -> None:
    os._exit(code)

@ol.task(isolated=True, retry=once)
def raises(what: str) -> None:
    raise {"Permanent": Permanent, "SystemExit": SystemExit, "KeyError": KeyError}[what]("said")

@ol.task(isolated=True, retry=once, timeout=1.5)
def hangs(path: str) -> None:
    Path(path).write_text(str(os.getpid()))
    while True:
        time.sleep(0.01)

@ol.task(isolated=True)
def naps(path: str) -> str:
    Path(path).write_text(str(os.getpid()))
    time.sleep(60)

@ol.task(isolated=True)
def forks() -> str:
    """Leaves a process behind that holds everything open."""
    if os.fork() == 0:
        time.sleep(5)
        os._exit(0)
    return "done"

def noted(what: str) -> str:
    with open(os.environ["ISOLATED_NOTES"], "a") as notes:
        notes.write(what + "\\n")
    return what

@ol.task(isolated=True, retry=Retry(max_attempts=2, base=0.0, jitter=0.0))
def steps(ctx: Context) -> list:
    given = [ctx.step("one", noted, "one")]
    if ctx.attempt == 1:
        os._exit(3)
    return given + list(ctx.steps({n: (lambda n=n: noted(n)) for n in ("two", "three")}).values())

@ol.task(isolated=True, retry=once)
def completes(then: str, ctx: Context) -> str:
    ctx.log("last words")
    ctx.enqueue(follow_up.job(1))
    with ctx.completing("by itself") as conn:
        conn.execute(f"INSERT INTO {os.environ['ISOLATED_TABLE']} VALUES (1)")
        if then == "dies inside":
            os.kill(os.getpid(), 9)
    if then == "dies afterwards":
        os.kill(os.getpid(), 9)
    return "ignored"

@ol.task(isolated=True, retry=once)
def streams(how: str, ctx: Context) -> None:
    for n in range(300):
        ctx.stream(f"{n} ")
        time.sleep(0.001)
    ctx.stream({"last": how})
    if how == "completes":
        with ctx.completing():
            pass

def tell(ctx: Context) -> None:
    ctx.stream("0 ")
    while not ol.store.run(stream_tail, ctx.job.id):
        time.sleep(0.001)
    for n in range(1, 100):
        ctx.stream(f"{n} ")

@ol.task(isolated=True, retry=Retry(max_attempts=2, base=0.0, jitter=0.0))
def tells(ctx: Context) -> int:
    ctx.step("one", tell, ctx)
    if ctx.attempt == 2:
        ctx.stream("and ")
        ctx.step("two", tell, ctx)
    os.kill(os.getpid(), signal.SIGKILL)

if __name__ == "__main__":
    from tests.worker.working import work
    work(ol).run()
'''


@pytest.fixture
def module(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ModuleType]:
    """Where isolated tasks are defined: a module that the child can import as we do."""
    name = f"isolated_{os.getpid()}_{time.monotonic_ns()}"
    (tmp_path / f"{name}.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("ISOLATED_URL", database.url)
    monkeypatch.setenv("ISOLATED_SCHEMA", database.schema)
    monkeypatch.setenv("ISOLATED_NOTES", str(tmp_path / "notes"))
    module = import_module(name)
    yield module
    module.ol.close()
    del sys.modules[name]


@pytest.mark.kinds("sqlite")
async def test_a_handler_in_a_process_of_its_own_knows_its_tick(module: ModuleType) -> None:
    """R234"""
    module.ol.create_schedule("nightly", module.ticks.job(), every="1h")
    end = datetime.now(UTC)
    [job] = module.ol.backfill_schedule("nightly", end - timedelta(hours=1), end)
    async with work(module.ol):
        result = await module.ol.aresult(job.id, timeout=60)
    tick = tick_of_key(job.key)
    assert tick is not None and result == str(tick)


@pytest.mark.kinds("sqlite")
async def test_a_handler_in_a_process_of_its_own_does_all_that_others_do(
    module: ModuleType,
) -> None:
    """Arguments, context, progress, follow-up jobs and a large result go through the pipe."""
    ol: Outlast = module.ol
    async with work(ol):
        job = await module.speaks.aenqueue(7)
        result = await ol.aresult(job.id, timeout=20)
        await aeventually(lambda: ol.counts()["succeeded"] == 3)
    assert result["pid"] != os.getpid()
    assert (result["attempt"], result["fence"], len(result["big"])) == (1, 1, 900_000)
    assert not alive(result["pid"])
    _, events = await ol.ahistory(job.id)
    assert [event.kind for event in events] == ["progress", "log"]
    assert events[0].data == {"done": 1, "total": 2, "note": "half-way"}
    assert events[1].data["pid"] == result["pid"]


@pytest.mark.kinds("sqlite")
async def test_a_process_that_dies_is_a_failed_attempt(module: ModuleType) -> None:
    """R032, R049: killed from outside, out of memory, a broken interpreter: the worker lives."""
    ol: Outlast = module.ol
    wanted = {
        "signal 9": module.dies.job(9),
        "signal 11": module.dies.job(11),
        "exit code 3": module.exits.job(3),
        "exit code 0": module.exits.job(0),
        "Permanent": module.raises.job("Permanent"),
        "SystemExit": module.raises.job("SystemExit"),
        "KeyError": module.raises.job("KeyError"),
    }
    async with work(ol):
        for about, job in zip(wanted, await ol.aenqueue(*wanted.values()), strict=True):
            dead = await ended(ol, job, timeout=30)
            assert (dead.state, dead.crashes) == ("dead", 0)
            assert dead.error is not None
            assert about in dead.error["type"] + dead.error["message"], dead.error


@pytest.mark.kinds("postgres")
async def test_a_process_is_killed_at_its_timeout(module: ModuleType, tmp_path: Path) -> None:
    """R032: a handler that loops for ever is terminated at its timeout ±10 %."""
    ol: Outlast = module.ol
    async with work(ol):
        job = await module.hangs.aenqueue(str(tmp_path / "pid"))
        dead = await ended(ol, job, timeout=20)
    assert dead.error is not None and dead.error["type"] == "TimedOut"
    assert dead.finished_at is not None and dead.started_at is not None
    assert 1.35 <= (dead.finished_at - dead.started_at).total_seconds() <= 1.65 + SLACK
    pid = tmp_path / "pid"
    assert not pid.exists() or not alive(int(pid.read_text()))  # it may have been slow to start


@pytest.mark.kinds("postgres")
async def test_a_process_is_killed_when_its_job_is_cancelled(
    module: ModuleType, tmp_path: Path
) -> None:
    """R115"""
    ol: Outlast = module.ol
    pid = tmp_path / "pid"
    async with work(ol):
        job = await module.naps.aenqueue(str(pid))
        await aeventually(lambda: pid.exists() and pid.read_text(), timeout=20)
        asked_at = time.monotonic()
        await ol.acancel(job.id)
        assert (await ended(ol, job)).state == "cancelled"
        assert time.monotonic() - asked_at < TIMINGS["renew_every"] + 0.5 + SLACK
    assert not alive(int(pid.read_text()))


@pytest.mark.kinds("sqlite")
async def test_what_a_handler_leaves_behind_does_not_hold_up_its_job(module: ModuleType) -> None:
    ol: Outlast = module.ol
    async with work(ol):
        job = await module.forks.aenqueue()
        assert await ol.aresult(job.id, timeout=20) == "done"


@pytest.mark.kinds("sqlite")
def test_a_process_ends_with_its_worker(
    module: ModuleType, processes: Processes, tmp_path: Path
) -> None:
    """R189: a worker that is killed leaves no handler behind, also one run as a script."""
    pid = tmp_path / "pid"
    module.naps.enqueue(str(pid))
    worker = processes.python(Path(module.__file__ or ""))
    eventually(lambda: pid.exists() and pid.read_text(), timeout=20, message=worker.output)
    child = int(pid.read_text())
    assert alive(child)
    worker.kill()
    eventually(lambda: not alive(child))


@pytest.mark.slow_on("sqlite")
async def test_its_steps_are_kept_like_any_others(module: ModuleType, tmp_path: Path) -> None:
    """R105: its process dies after the first, and the next one knows what it gave."""
    ol: Outlast = module.ol
    async with work(ol):
        job = await module.steps.aenqueue()
        assert await ol.aresult(job.id, timeout=30) == ["one", "two", "three"]
    assert sorted((tmp_path / "notes").read_text().split()) == ["one", "three", "two"]


@pytest.mark.slow_on("sqlite")
@pytest.mark.parametrize("then", ["returns", "dies inside", "dies afterwards"])
async def test_it_can_complete_its_own_job(
    module: ModuleType, database: Database, then: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R129: its own writes, its follow-up jobs and what it said commit with its completion."""
    ol: Outlast = module.ol
    ol.migrate()
    table = "effect" if database.is_sqlite else f"{database.schema}.effect"
    monkeypatch.setenv("ISOLATED_TABLE", table)
    database.rows(f"CREATE TABLE {table} (n integer)")
    done = then != "dies inside"
    async with work(ol) as worker:
        job = await module.completes.aenqueue(then)
        now = await ended(ol, job, timeout=30)
        assert (now.state, now.result) == (("succeeded", "by itself") if done else ("dead", None))
        await aeventually(lambda: worker.counts["succeeded" if done else "dead"] >= 1)
        if done:
            await aeventually(lambda: ol.counts()["succeeded"] == 2)
    assert database.rows(f"SELECT n FROM {table}") == ([(1,)] if done else [])
    _, events = await ol.ahistory(job.id)
    assert [event.data["message"] for event in events] == ["last words"]
    assert worker.counts["refused"] == worker.counts["lost"] == 0


@pytest.mark.slow_on("postgres")
@pytest.mark.kinds("sqlite", "postgres")
async def test_output_of_a_process_of_its_own_reaches_its_readers(module: ModuleType) -> None:
    """R248: as it comes, all of it, and once: also what it completes its job with."""
    ol: Outlast = module.ol
    async with work(ol):
        for how in ("returns", "completes"):
            job = await module.streams.aenqueue(how)
            chunks = [chunk async for chunk in ol.stream(job.id, poll=0.02)]
            assert "".join(chunk.text for chunk in chunks) == "".join(f"{n} " for n in range(300))
            assert len(chunks) < 100
            assert chunks[-1].data == {"last": how}


@pytest.mark.slow_on("postgres")
async def test_the_output_of_steps_is_stored_with_them(module: ModuleType) -> None:
    """R248, R105: the process dies right after each step."""
    words = "".join(f"{n} " for n in range(100))
    async with work(module.ol):
        job = await module.tells.aenqueue()
        assert (await ended(module.ol, job)).attempt == 2
        told = {1: "", 2: ""}
        for chunk in module.ol.stream(job.id):
            told[chunk.attempt] += chunk.text
    assert told == {1: words, 2: "and " + words}
