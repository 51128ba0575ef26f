"""A remote worker runs the same tasks: what a handler may know, say and do."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from outlast import (
    Context,
    InvalidSetting,
    Job,
    Outlast,
    Permanent,
    Retry,
    RetryLater,
    ServerRefused,
    ServerUnavailable,
    State,
    chain,
    group,
)
from outlast.model.claim import Claim
from outlast.model.outcome import release
from outlast.remote import RemoteWorker
from outlast.remote.http_client import ServerClient
from outlast.remote.reporter import ReceivedOffer
from outlast.remote.spool import Spool
from tests.service.serving import Served
from tests.support import Proxy, aeventually

Ended = Callable[[Job], Any]
CLAIM = Claim(
    "id", 1, "work", "{}", 1, 0, 0, 1, 1, "q", "", 0, 0.0, 0.0, 0.0, None, None, None, None, "w"
)


@asynccontextmanager
async def working(
    served: Served, folder: Path, url: str | None = None, **settings: Any
) -> AsyncIterator[RemoteWorker]:
    said = {"concurrency": 4, "grace": 1.0, "spool": folder, **settings}
    token = served.token("work")
    async with RemoteWorker(url or served.url, token, served.ol, **said) as worker:
        yield worker


async def ended(ol: Outlast, job: Job, timeout: float = 20.0) -> Job:
    async def look() -> Job | None:
        now = await ol.ajob(job.id)
        return now if now.final else None

    return await aeventually(look, timeout, message=lambda: ol.explain(job.id))


async def test_what_handlers_say_and_do(served: Served, ol: Outlast, tmp_path: Path) -> None:
    """R142, R224: progress, logs, steps, follow-ups, the results before it."""
    ran: list[str] = []

    @ol.task(retry=Retry(max_attempts=3, base=0.0, jitter=0.0))
    def keeps(ctx: Context) -> int:
        kept = ctx.step("once", lambda: ran.append("once") or 7)
        if ctx.attempt == 1:
            raise RuntimeError("the first attempt fails")
        return int(kept)

    @ol.task
    async def says(n: int, ctx: Context) -> int:
        assert (ctx.job.id, ctx.attempt, ctx.fence) == (ctx.job.id, 1, 1)
        ctx.progress(1, 2, "half")
        ctx.log("done", n=n)
        ctx.enqueue(chain(leaf.job(n), leaf.job(n)))
        ctx.enqueue(chain(leaf.job(0), leaf.job(0)).using(key="shared"))
        ctx.enqueue(late.using(key="one", unique="waiting", delay=3600).job(n))
        ctx.enqueue(late.using(key="two", debounce=3600).job(n))
        return n

    @ol.task
    def late(n: int) -> None: ...

    @ol.task
    def leaf(n: int) -> int:
        return n + 1

    @ol.task
    async def sums(ctx: Context) -> int:
        return sum([result async for result in ctx.results()])

    @ol.task
    def sums_too(ctx: Context) -> list[Any]:
        return [(job.task, job.result) for job in ctx.prerequisites()]

    async with working(served, tmp_path):
        first, second, last, _ = ol.enqueue(
            chain(group(says.job(1), says.job(2)), sums.job(), sums_too.job())
        )
        assert (await ended(ol, last)).result == 3
        tail = (await ol.ajobs(task="sums_too"))[0]
        assert (await ended(ol, tail)).result == [["sums", 3]]
        assert (await ended(ol, keeps.enqueue())).result == 7
        leaves = await ol.ajobs(task="leaf")
        for job in leaves:
            assert (await ended(ol, job)).state is State.SUCCEEDED
    assert ran == ["once"]
    assert len(leaves) == 6, "each its own chain, and both one under a key"
    assert sorted(str(job.key) for job in ol.jobs(task="late")) == ["one", "two"]
    events = [event.data for event in ol.history(first.id)[1]]
    assert events == [{"done": 1, "total": 2, "note": "half"}, {"message": "done", "n": 1}]
    assert second.id != first.id


async def test_every_way_to_end(served: Served, ol: Outlast, tmp_path: Path) -> None:
    """R041: each becomes what it would on a local worker."""

    @ol.task(retry=Retry(max_attempts=5, base=60.0, jitter=0.0))
    async def fails() -> None:
        raise ValueError("no")

    @ol.task
    def gives_up() -> None:
        raise Permanent("never")

    @ol.task
    async def postpones() -> None:
        raise RetryLater(60.0)

    @ol.task(retry=Retry(max_attempts=5, base=60.0, jitter=0.0))
    async def fails_for_long() -> None:
        raise RetryLater(3600.0, spent=True)

    @ol.task(timeout=0.2, max_attempts=1)
    async def slow() -> None:
        await asyncio.sleep(600)

    @ol.task
    def completes(ctx: Context) -> None:
        with ctx.completing(1):
            pass

    @ol.task
    def odd() -> object:
        return object()

    @ol.task(batch=3, wait=0.3)
    async def many(items: list[int]) -> list[int]:
        return [item * len(items) for item in items]

    @ol.task
    def says_much(ctx: Context) -> None:
        ctx.log("x", **{f"f{n}": "y" * 4000 for n in range(60)})

    async with working(served, tmp_path, concurrency=12):
        jobs = ol.enqueue(
            fails.job(), gives_up.job(), postpones.job(), slow.job(), completes.job(), odd.job(),
            says_much.job(), fails_for_long.job(), many.job(1), many.job(2), many.job(3),
        )  # fmt: skip
        failed, given_up, postponed, timed_out, unsupported, unstorable, long, *rest = jobs
        later, *items = rest
        assert (await ended(ol, given_up)).state is State.DEAD
        late = (await ended(ol, timed_out)).error
        assert late is not None
        assert late["type"] == "TimedOut"
        for job in (unsupported, long):
            await aeventually(lambda job=job: ol.job(job.id).error is not None)
        assert "completing() needs the database" in (ol.job(unsupported.id).error or {})["message"]
        assert "at most 200,000" in (ol.job(long.id).error or {})["message"]
        assert (await ended(ol, unstorable)).state is State.DEAD
        assert [(await ended(ol, item)).result for item in items] == [3, 6, 9]
        for job, failures, wait in ((failed, 1, 60), (postponed, 0, 60), (later, 1, 3600)):
            await aeventually(lambda job=job: ol.job(job.id).state is State.SCHEDULED)
            now = ol.job(job.id)
            assert now.failures == failures
            assert wait - 10 < (now.run_at - now.created_at).total_seconds() < wait + 30


async def test_a_worker_takes_short_jobs_ahead_and_puts_back_what_it_has_no_slot_for(
    served: Served, ol: Outlast, tmp_path: Path
) -> None:
    """R142: while its jobs are short; those that it does not come to are for others, unspent."""
    running: set[str] = set()
    most = 0
    go_on = asyncio.Event()

    @ol.task
    async def short() -> None: ...

    @ol.task
    async def long(ctx: Context) -> None:
        nonlocal most
        running.add(ctx.job.id)
        most = max(most, len(running))
        await go_on.wait()
        running.discard(ctx.job.id)

    ahead = 0
    async with working(served, tmp_path, concurrency=10) as worker:
        for turn in range(1, 6):  # on a busy machine short jobs may seem long
            go_on.clear()
            jobs = ol.enqueue(*[short.job()] * 300, *[long.job()] * 60)
            await aeventually(lambda: len(running) == 10 and ol.counts()["ready"] == 50)
            assert not worker.worker.executor.prefetched
            waiting = await ol.ajobs(state=State.READY, limit=60)
            assert {(job.attempt, job.crashes) for job in waiting} == {(0, 0)}
            ahead += sum(job.fence > 0 for job in waiting)
            go_on.set()
            done = turn * len(jobs)
            await aeventually(lambda done=done: ol.counts()["succeeded"] == done)
            if ahead:
                break
    assert ahead, "none was taken ahead"
    assert most == 10


@pytest.mark.kinds("sqlite")
async def test_what_is_accepted_while_a_worker_stops_is_put_back(
    served: Served, ol: Outlast, tmp_path: Path
) -> None:
    """R041: its call was on its way when the worker was told to."""
    ol.task(name="work")(lambda: None)
    worker = RemoteWorker(served.url, None, ol, spool=tmp_path)
    worker.stop()
    answers = [{"status": "ok", "cancel": False}]
    sink = worker.worker.sink
    sink._start_accepted([ReceivedOffer(CLAIM, 0.0)], answers, time.monotonic())
    [held] = sink._ended
    assert held.transition == release(CLAIM)
    assert not worker.worker.in_flight.running()


async def test_one_that_cannot_renew_stops_before_its_lease_ends(
    served: Served, ol: Outlast, tmp_path: Path
) -> None:
    """R012: whoever has the job next is alone with it."""
    stopped: list[float] = []
    began = threading.Event()

    @ol.task
    async def endless() -> None:
        began.set()
        try:
            await asyncio.sleep(600)
        finally:
            stopped.append(time.monotonic())

    with Proxy.before(served.url) as proxy:
        async with working(served, tmp_path, proxy.url(served.url), concurrency=1):
            job = endless.enqueue()
            await asyncio.to_thread(began.wait, 20)
            proxy.freeze()
            await aeventually(lambda: stopped, 20)
            lost = await aeventually(lambda: ol.job(job.id).crashes == 1 and time.monotonic(), 20)
            assert stopped[0] < lost
            ol.cancel(job.id)
            proxy.thaw()


@pytest.mark.kinds("sqlite")
@pytest.mark.parametrize("frame", [
    {"type": "offers"}, {"type": "offers", "jobs": [{"id": "x"}]},
    {"type": "hello", "worker": "w", "lease": "long", "keep_alive": 1},
])  # fmt: skip
async def test_a_server_that_makes_no_sense_is_one_that_is_away(
    ol: Outlast, tmp_path: Path, frame: dict[str, Any]
) -> None:
    """R142: the worker tries again, and does not end."""
    worker = RemoteWorker("http://127.0.0.1:1", None, ol, spool=tmp_path)
    with pytest.raises(ServerUnavailable, match="invalid frame"):
        worker.worker.source.take_frame(frame)


@pytest.mark.kinds("sqlite")
async def test_what_many_threads_say_at_once_is_numbered_and_kept_in_one_order(
    served: Served, ol: Outlast, tmp_path: Path
) -> None:
    """R139: else one would go for another that was sent, and be lost with its worker."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        worker = RemoteWorker(served.url, None, ol, spool=tmp_path)
        worker.session.open_spool()
        sink = worker.worker.sink

        def say() -> None:
            for _ in range(300):
                sink.add_event(CLAIM, "log", "{}")

        threads = [threading.Thread(target=say) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    ends = [one.end for one in sink._events._queued]
    numbers = [json.loads(one.text)["n"] for one in sink._events._queued]
    assert ends == sorted(ends)
    assert numbers == list(range(2400))


@pytest.mark.kinds("sqlite")
async def test_what_dead_workers_left_is_sent_in_few_calls(
    served: Served, ol: Outlast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R139, R141: a thousand at a time; before that, nothing else is done."""
    ol.task(name="work")(lambda: None)
    worker = RemoteWorker(served.url, served.token("work"), ol, spool=tmp_path)
    left = Spool.create(worker.session.folder, "dead")
    for n in range(2500):
        text = json.dumps({"do": "event", "token": "strange", "n": n, "kind": "log", "data": "{}"})
        left.append(text.encode())
    os.close(left._fd)
    calls: list[int] = []
    post = ServerClient.post

    async def counted(line: ServerClient, path: str, body: str) -> Any:
        calls.append(len(json.loads(body)["reports"]))
        return await post(line, path, body)

    monkeypatch.setattr(ServerClient, "post", counted)
    await worker.worker.source._send_orphans()
    await worker.session.aclose()
    assert calls == [1000, 1000, 500]
    assert [file.name for file in worker.session.folder.iterdir()] == ["dead.refused"]


async def test_a_handler_that_blocks_its_worker_past_its_timeout_loses_its_job(
    served: Served, ol: Outlast, tmp_path: Path
) -> None:
    """R032: and what is kept of it says why."""

    @ol.task(timeout=0.2, max_attempts=1)
    async def blocks() -> None:
        began.set()
        go_on.wait(30)

    began, go_on = threading.Event(), threading.Event()

    def work() -> None:
        said: dict[str, Any] = {"concurrency": 1, "cancel_grace": 0.0, "grace": 0.0}
        worker = RemoteWorker(served.url, served.token("work"), ol, spool=tmp_path, **said)
        stop.append(worker.stop)
        asyncio.run(worker.arun())

    stop: list[Callable[[], None]] = []
    thread = threading.Thread(target=work)
    thread.start()
    try:
        dead = await ended(ol, blocks.enqueue())
    finally:
        go_on.set()
        stop[0]()
        thread.join(20)
    assert dead.state is State.DEAD
    assert (dead.error or {})["type"] == "TimedOut"
    assert "ran longer than its timeout" in (dead.error or {})["message"]


@pytest.mark.kinds("sqlite")
async def test_a_folder_that_cannot_be_written_to_is_named(
    served: Served, ol: Outlast, tmp_path: Path
) -> None:
    ol.task(name="work")(lambda: None)
    (tmp_path / "file").touch()
    with pytest.raises(InvalidSetting, match="cannot be written to"):
        await RemoteWorker(served.url, None, ol, spool=tmp_path / "file").arun()


async def test_a_completion_waits_for_its_events(
    served: Served, ol: Outlast, tmp_path: Path
) -> None:
    """R143: while the network is down at the end, the job is not complete with events missing."""

    @ol.task
    async def says(ctx: Context) -> None:
        proxy.refuse()
        for n in range(10):
            ctx.log("said", n=n)

    with Proxy.before(served.url) as proxy:
        async with working(served, tmp_path, proxy.url(served.url)) as worker:
            job = says.enqueue()
            await aeventually(lambda: worker.counts["turn_failed"] > 0)
            assert ol.job(job.id).state is State.RUNNING
            proxy.accept()
            await ended(ol, job)
    assert [event.data["n"] for event in ol.history(job.id)[1]] == list(range(10))


@pytest.mark.kinds("sqlite")
async def test_one_that_is_not_let_in_ends_with_an_error(
    served: Served, ol: Outlast, tmp_path: Path
) -> None:
    """R160: without tasks, scope or a good URL; each is named."""
    with pytest.raises(InvalidSetting, match="has no tasks"):
        await RemoteWorker(served.url, None, ol, spool=tmp_path).arun()
    ol.task(name="work")(lambda: None)
    worker = RemoteWorker(served.url, served.token("read"), ol, spool=tmp_path)
    with pytest.raises(ServerRefused, match="lacks the scope work"):
        await worker.arun()
    for wrong in ("jobs.example.org", "ftp://jobs", "https://me:secret@jobs"):
        with pytest.raises(InvalidSetting, match="must be like https") as caught:
            RemoteWorker(wrong, None, ol)
        assert "secret" not in str(caught.value)


@pytest.mark.kinds("sqlite")
async def test_revocation_stops_a_worker(served: Served, ol: Outlast, tmp_path: Path) -> None:
    """It ends with an error: no request of it would be accepted any more."""
    ol.task(name="work")(lambda: None)
    secret, id = served.made_token("work")
    worker = RemoteWorker(served.url, secret, ol, spool=tmp_path)
    running = asyncio.create_task(worker.arun())
    await aeventually(lambda: any(w.id.startswith("remote-") for w in ol.workers()))
    served.revoke(id)
    with pytest.raises(ServerRefused, match="this token is invalid"):
        await asyncio.wait_for(running, 20)


async def test_what_is_said_under_a_lost_claim_is_forgotten_knowingly(
    served: Served, ol: Outlast, tmp_path: Path
) -> None:
    """R013, R139: the server says that it was not kept; it is counted, and not sent again."""

    @ol.task
    async def says(ctx: Context) -> None:
        if ctx.fence == 1:
            await ol.areclaim(ctx.job.id)
            ctx.log("from the past")
            await asyncio.sleep(30)  # it is stopped when that is answered
        ctx.log("from the present")

    async with working(served, tmp_path) as worker:
        job = says.enqueue()
        await ended(ol, job, timeout=10)
        assert [event.data["message"] for event in told(ol, job)] == ["from the present"]
        assert worker.counts["events_dropped"] == 1
        await aeventually(lambda: worker.session.spool.sent == worker.session.spool.size > 0)


def told(ol: Outlast, job: Job) -> list[Any]:
    return [event for event in ol.history(job.id)[1] if event.kind == "log"]
