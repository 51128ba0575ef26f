"""Durable waits: the attempt ends, the row waits, and the handler goes on from what was kept."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator
from contextlib import closing
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

import pytest
from pydantic import BaseModel

from outlast import (
    BatchContext,
    Context,
    InvalidOption,
    InvalidSignal,
    Job,
    JobDead,
    JobNotFound,
    KeyConflict,
    Outlast,
    Permanent,
    Retry,
    SignalTimeout,
    State,
    TooLate,
    Unsupported,
    group,
)
from outlast.model.claim import Claim
from outlast.model.wait import Waiting, WaitKind
from outlast.worker.waits import Waits
from tests.support import Database, aeventually

from .scripts import both_colours, handler
from .test_caller_actions import opened
from .working import Spy, ended, sql, work

ONCE = Retry(max_attempts=1)
Script = Generator[Any, Any, Any]


class Decision(BaseModel):
    ok: bool
    by: str = "nobody"


async def waiting(ol: Outlast, job: Job, name: str = "") -> Job:
    """The job, once its handler waits."""

    async def look() -> Job | None:
        now = await ol.ajob(job.id)
        return now if now.state is State.WAITING and name in await ol.aexplain(job.id) else None

    return await aeventually(look, message=lambda: ol.explain(job.id))


# Sleep


@both_colours
async def test_a_sleep_ends_the_attempt_unspent_and_the_handler_goes_on(
    ol: Outlast, colour: str
) -> None:
    """R245: no attempt, failure or crash is charged; steps and passed sleeps are kept."""
    calls, seen = [], []

    def script(ctx: Context) -> Script:
        yield ctx.step("first", lambda: calls.append("first"))
        seen.append((ctx.attempt, ctx.fence))
        yield ctx.sleep("0.2s")
        yield ctx.step("second", lambda: calls.append("second"))
        yield ctx.sleep(timedelta(seconds=0.1))
        yield ctx.sleep(0)
        return "rested"

    task = handler(ol, colour, script, retry=ONCE)
    async with work(ol):
        job = await task.aenqueue()
        assert await ol.aresult(job.id, timeout=30) == "rested"
    now = await ol.ajob(job.id)
    assert (now.attempt, now.failures, now.crashes, now.fence) == (1, 0, 0, 3)
    assert calls == ["first", "second"]
    assert seen == [(1, 1), (1, 2), (1, 3)]


async def test_a_sleeping_job_holds_no_slot_and_no_lease(ol: Outlast) -> None:
    """R245: on concurrency 1, others run while it sleeps; its row has no owner."""

    @ol.task
    async def sleeper(ctx: Context) -> None:
        await ctx.sleep("3d")

    @ol.task
    async def other() -> str:
        return "ran"

    async with work(ol, concurrency=1):
        asleep = await sleeper.aenqueue()

        async def sleeping() -> bool:
            return (await ol.ajob(asleep.id)).state is State.SCHEDULED

        await aeventually(sleeping)
        assert await ol.aresult((await other.aenqueue()).id, timeout=30) == "ran"
        now = await ol.ajob(asleep.id)
        assert (now.worker, now.lease_until, now.attempt) == (None, None, 0)
        why = await ol.aexplain(asleep.id)
        assert why.startswith("Its handler sleeps since ") and "in 3.0 d" in why
        cancelled = await ol.acancel(asleep.id)
        assert cancelled.state is State.CANCELLED


async def test_a_redriven_job_sleeps_to_the_end_of_its_sleep(ol: Outlast) -> None:
    """R245: the moment is kept, whatever happens in between."""

    @ol.task
    async def sleeper(ctx: Context) -> None:
        await ctx.sleep("3d")

    async def asleep() -> Job | None:
        now = await ol.ajob(job.id)
        return now if now.state is State.SCHEDULED else None

    async with work(ol):
        job = await sleeper.aenqueue()
        until = (await aeventually(asleep)).run_at
        await ol.acancel(job.id)
        await ol.aretry(job.id)
        assert (await aeventually(asleep)).run_at == until


# Signals


@both_colours
async def test_a_signal_wakes_the_job_that_waits_for_it(ol: Outlast, colour: str) -> None:
    """R246: the value is typed, the attempt unspent, and the history says how long it waited."""

    def script(ctx: Context) -> Script:
        answer = yield ctx.wait("approval", type=Decision, timeout="7d")
        return f"{type(answer).__name__} {answer.ok} {answer.by}"

    task = handler(ol, colour, script, retry=ONCE)
    async with work(ol):
        job = await task.aenqueue()
        now = await waiting(ol, job)
        assert (now.worker, now.lease_until, now.attempt) == (None, None, 0)
        why = await ol.aexplain(job.id)
        assert "waiting for signal approval since " in why and ", times out at " in why
        sent = await ol.asignal(job.id, "approval", Decision(ok=True, by="me"))
        assert sent.new and sent.woke
        assert await ol.aresult(job.id, timeout=30) == "Decision True me"
    _, events = await ol.ahistory(job.id)
    waits = [event.data for event in events if event.kind == "wait"]
    assert [(w["wait"], w["outcome"]) for w in waits] == [("approval", "signal")]
    assert waits[0]["text"].startswith("waited ") and waits[0]["text"].endswith(" for approval")


@both_colours
async def test_early_signals_are_kept_and_each_is_taken_once_in_order(
    ol: Outlast, colour: str
) -> None:
    """R246: a signal that comes before the wait is there for it."""

    def script(ctx: Context) -> Script:
        first = yield ctx.wait("part")
        second = yield ctx.wait("part")
        name, value = yield ctx.wait_any("stop", "part")
        return [first, second, name, value]

    task = handler(ol, colour, script)
    job = await task.aenqueue()
    for value in (1, 2):
        assert not (await ol.asignal(job.id, "part", value)).woke
    async with work(ol):
        await waiting(ol, job, "stop or part")
        await ol.asignal(job.id, "other", "not for it")
        assert (await ol.ajob(job.id)).state is State.WAITING
        await ol.asignal(job.id, "part", 3)
        assert await ol.aresult(job.id, timeout=30) == [1, 2, "part", 3]


@both_colours
async def test_a_wait_times_out_once_and_for_all(ol: Outlast, colour: str) -> None:
    """R246: what was decided is kept; the signal that comes too late is there for the next wait."""
    seen = []

    def script(ctx: Context) -> Script:
        try:
            yield ctx.wait("answer", timeout=0.1)
        except SignalTimeout as late:
            seen.append((late.wait, str(late)))
        return (yield ctx.wait("answer"))

    if colour == "sync":  # a generator cannot be thrown into from a plain call

        def plain(ctx: Context) -> Any:
            try:
                ctx.wait("answer", timeout=0.1)
            except SignalTimeout as late:
                seen.append((late.wait, str(late)))
            return ctx.wait("answer")

        task: Any = ol.task(plain)
    else:
        task = handler(ol, colour, script)
    async with work(ol):
        job = await task.aenqueue()
        await waiting(ol, job, "without a time-out")
        await ol.asignal(job.id, "answer", "late")
        assert await ol.aresult(job.id, timeout=30) == "late"
    assert {wait for wait, _ in seen} == {"answer"}
    assert {text for _, text in seen} == {"'answer' timed out: signal answer did not come in time."}


async def test_a_key_is_for_one_signal(ol: Outlast) -> None:
    """R246: sent twice with one key, it is kept once; another value under that key is refused."""

    @ol.task
    async def two(ctx: Context) -> list[Any]:
        return [await ctx.wait("click"), await ctx.wait("click")]

    async with work(ol):
        job = await two.aenqueue()
        assert (await ol.asignal(job.id, "click", 1, key="a")).new
        assert not (await ol.asignal(job.id, "click", 1, key="a")).new
        with pytest.raises(KeyConflict, match="another value"):
            await ol.asignal(job.id, "click", 2, key="a")
        await waiting(ol, job)
        await ol.asignal(job.id, "click", 2, key="b")
        assert await ol.aresult(job.id, timeout=30) == [1, 2]
        assert not (await ol.asignal(job.id, "click", 2, key="b")).new


async def test_a_declared_signal_is_checked_at_the_door(ol: Outlast) -> None:
    """R246: every problem is named, and nothing is stored."""

    @ol.task(signals={"approval": Decision})
    async def asks(ctx: Context) -> bool:
        answer: Decision = await ctx.wait("approval")
        return answer.ok

    async with work(ol):
        job = await asks.aenqueue()
        with pytest.raises(InvalidSignal) as refused:
            await ol.asignal(job.id, "approval", {"ok": [], "by": 7})
        assert [problem.path for problem in refused.value.problems] == ["ok", "by"]
        with pytest.raises(InvalidSignal, match="it takes approval"):
            await ol.asignal(job.id, "aproval", {"ok": True})
        with pytest.raises(InvalidSignal, match="cannot be JSON"):
            await ol.asignal(job.id, "approval", object())
        await ol.asignal(job.id, "approval", {"ok": False})
        assert await ol.aresult(job.id, timeout=30) is False


async def test_an_undeclared_value_is_checked_by_the_wait(ol: Outlast) -> None:
    """R246: it is taken, and the error names the problem; the handler may ask again."""

    @ol.task
    async def asks(ctx: Context) -> str:
        try:
            await ctx.wait("approval", type=Decision)
        except InvalidSignal as wrong:
            return f"{wrong} / {(await ctx.wait('approval', type=Decision)).by}"
        return "no"

    async with work(ol):
        job = await asks.aenqueue()
        await ol.asignal(job.id, "approval", {"ok": "perhaps"})
        await ol.asignal(job.id, "approval", {"ok": True, "by": "me"})
        text = await ol.aresult(job.id, timeout=30)
    assert "1 problem" in text and "ok: " in text and text.endswith("/ me")


async def test_a_signal_to_no_job_or_an_ended_one_is_refused(ol: Outlast) -> None:
    """R246: the sender learns that nobody will take it."""

    @ol.task
    async def quick() -> None: ...

    async with work(ol):
        job = await quick.aenqueue()
        await ended(ol, job)
        with pytest.raises(TooLate, match="already succeeded"):
            await ol.asignal(job.id, "approval", 1)
    with pytest.raises(JobNotFound):
        ol.signal("01900000-0000-7000-8000-000000000000", "approval", 1)
    with pytest.raises(InvalidOption):
        ol.signal(job.id, "", 1)


async def test_a_signal_of_the_callers_transaction_wakes_after_its_commit(
    ol: Outlast, database: Database
) -> None:
    """R246: it exists if, and only if, that commits; meanwhile no row of a job is locked."""

    @ol.task
    async def asks(ctx: Context) -> Any:
        return await ctx.wait("paid")

    async with work(ol):
        job = await asks.aenqueue()
        await waiting(ol, job)
        with closing(opened(database)) as conn:
            ol.signal(job.id, "paid", 0, conn=conn)
            conn.rollback()
            ol.signal(job.id, "paid", 7, conn=conn)
            if not database.is_sqlite:
                await ol.aprioritize_all(5, state="waiting")
                assert (await ol.ajob(job.id)).priority == 5, "its row is not locked"
            assert (await ol.ajob(job.id)).state is State.WAITING
            conn.commit()
        assert await ol.aresult(job.id, timeout=30) == 7


# Other jobs


@both_colours
async def test_a_handler_waits_for_another_job_and_has_its_result(ol: Outlast, colour: str) -> None:
    """R246: a child's end wakes it; its result is kept with the wait."""

    @ol.task
    async def double(n: int) -> int:
        return 2 * n

    def script(ctx: Context) -> Script:
        child = yield ctx.step("child", lambda: double.enqueue(n=21).id)
        return (yield ctx.wait_for(child, type=int))

    task = handler(ol, colour, script)
    async with work(ol, concurrency=1):
        job = await task.aenqueue()
        assert await ol.aresult(job.id, timeout=30) == 42
    assert (await ol.ajob(job.id)).attempt == 1


async def test_the_end_of_a_dead_job_is_an_error_where_it_was_awaited(ol: Outlast) -> None:
    """R246: and so is the end of a cancelled one."""

    @ol.task
    async def fails() -> None:
        raise Permanent("broken")

    @ol.task
    async def parent(child: str, ctx: Context) -> str:
        try:
            await ctx.wait_for(child)
        except JobDead as dead:
            return dead.reason
        return "no"

    async with work(ol):
        child = await fails.using(delay=0.3).aenqueue()
        job = await parent.aenqueue(child.id)
        assert await ol.aresult(job.id, timeout=30) == "outlast.model.errors.Permanent: broken"


async def test_a_handler_waits_for_a_whole_flow(ol: Outlast) -> None:
    """R246: it is woken by the end of the last job, and gets the counts."""

    @ol.task
    async def part(n: int) -> int:
        await asyncio.sleep(0.01 * n)
        return n

    @ol.task
    async def parent(ctx: Context) -> dict[str, int]:
        def spawn() -> str:
            made = ol.enqueue(group(*[part.job(n) for n in range(3)]).then(part.job(1)))
            return str(made[0].flow)

        flow = await ctx.step("spawn", spawn)
        counted: dict[str, int] = await ctx.wait_for(flow)
        return counted

    async with work(ol):
        job = await parent.aenqueue()
        assert await ol.aresult(job.id, timeout=30) == {"succeeded": 4}


# Mistakes


def test_a_wait_for_a_flow_that_grows_meanwhile_has_a_job_to_wait_for() -> None:
    """R246: a job joins the flow between the look for one and the look at the flow."""
    flow, job = str(uuid4()), str(uuid4())
    claim = cast(Claim, SimpleNamespace(id=str(uuid4()), fence=1))
    asked = Waits(claim, None).end_of(flow, None, None, None)
    next(asked)
    answers: list[Any] = [(WaitKind.FLOW, None), None, (WaitKind.FLOW, job), None]
    with pytest.raises(Waiting) as ended:
        for answer in answers:
            asked.send(answer)
    assert ended.value.wait.awaits == job


async def test_a_caught_wait_is_an_error_that_says_so(ol: Outlast) -> None:
    """R245: a handler that swallows the end of its attempt does not succeed without waiting."""

    @ol.task(retry=ONCE)
    def catches(ctx: Context) -> str:
        try:
            ctx.wait("never")
        except BaseException:
            return "went on"
        return "no"

    async with work(ol):
        now = await ended(ol, await catches.aenqueue())
    assert now.state is State.DEAD and "was caught by the handler" in now.error["message"]


async def test_a_wait_in_a_task_group_ends_the_attempt(ol: Outlast) -> None:
    """R245: a wait may be wrapped in an exception group, as long as nothing else failed."""

    @ol.task
    async def grouped(ctx: Context) -> Any:
        async with asyncio.TaskGroup() as tasks:
            found = tasks.create_task(ctx.wait("go"))
        return found.result()

    async with work(ol):
        job = await grouped.aenqueue()
        await waiting(ol, job)
        await ol.asignal(job.id, "go", 5)
        assert await ol.aresult(job.id, timeout=30) == 5


async def test_waits_are_refused_where_they_cannot_be(ol: Outlast) -> None:
    """R245: in a step, in a batch, under a name that is taken, for a wrong duration."""
    errors: list[str] = []

    @ol.task
    def asks(ctx: Context) -> None:
        for wrong in (
            lambda: ctx.step("s", lambda: ctx.sleep(1)),
            lambda: ctx.sleep("soon"),
            lambda: ctx.sleep(-1),
            lambda: ctx.wait("a", timeout="1 fortnight"),
            ctx.wait_any,
            lambda: ctx.wait_for("no id"),
        ):
            try:
                wrong()
            except InvalidOption as refused:
                errors.append(str(refused))

    async with work(ol):
        await ended(ol, await asks.aenqueue())
    assert len(errors) == 6
    assert "a step runs once" in errors[0] and '"90s", "2h", "3d"' in errors[1]


async def test_a_batch_handler_cannot_wait(ol: Outlast) -> None:
    """R245: its items share one call."""
    errors: list[str] = []

    @ol.task(batch=2, wait=0.0)
    def batch(items: list[int], ctx: BatchContext) -> None:
        try:
            ctx.items[0].sleep(1)
        except Unsupported as refused:
            errors.append(str(refused))

    async with work(ol):
        await ended(ol, await batch.aenqueue(1))
    assert len(errors) == 1 and "batch handler cannot wait" in errors[0]


# Changed code


async def test_code_may_change_under_waiting_jobs(ol: Outlast) -> None:
    """R245: kept waits are found by their names: a removed one is ignored, a new one waits, and a
    renamed one waits anew."""
    version = {"now": 1}

    @ol.task
    async def changes(ctx: Context) -> list[Any]:
        if version["now"] == 1:
            return [await ctx.wait("a"), await ctx.wait("b"), await ctx.wait("c")]
        return [await ctx.wait("c"), await ctx.wait("new"), await ctx.wait("a", name="renamed")]

    async with work(ol):
        job = await changes.aenqueue()
        await ol.asignal(job.id, "a", 1)
        await waiting(ol, job, "signal b")
        version["now"] = 2
        await ol.asignal(job.id, "b", 2)
        await ol.asignal(job.id, "c", 3)
        await waiting(ol, job, "signal new")
        await ol.asignal(job.id, "new", 4)
        await waiting(ol, job, "signal a")
        await ol.asignal(job.id, "a", 5)
        assert await ol.aresult(job.id, timeout=30) == [3, 4, 5]


async def test_steps_may_change_under_waiting_jobs(ol: Outlast) -> None:
    """R105, R245: with a wait between the steps, kept ones give what they gave, in any order; a
    removed one is not missed, and a renamed one runs again."""
    version, ran = {"now": 1}, list[str]()

    @ol.task
    async def changes(ctx: Context) -> list[str]:
        def step(name: str) -> Any:
            return ctx.step(name, lambda: ran.append(name) or f"{name} of {version['now']}")  # type: ignore[func-returns-value]

        first = ("a", "b", "gone") if version["now"] == 1 else ("b", "renamed", "a")
        values = [await step(name) for name in first]
        await ctx.wait("go")
        return [*values, await step("last")]

    async with work(ol):
        job = await changes.aenqueue()
        await waiting(ol, job, "signal go")
        version["now"] = 2
        await ol.asignal(job.id, "go")
        told = await ol.aresult(job.id, timeout=30)
    assert told == ["b of 1", "renamed of 2", "a of 1", "last of 2"]
    assert ran == ["a", "b", "gone", "renamed", "last"]


async def test_a_name_that_was_a_wait_of_another_kind_is_refused(ol: Outlast) -> None:
    """R245: a result of another kind is never given."""
    version = {"now": 1}

    @ol.task(retry=ONCE)
    async def changes(ctx: Context) -> Any:
        if version["now"] == 1:
            await ctx.wait("x", name="pause")
        else:
            await ctx.sleep(1, name="pause")

    async with work(ol):
        job = await changes.aenqueue()
        await waiting(ol, job)
        version["now"] = 2
        await ol.asignal(job.id, "x")
        now = await ended(ol, job)
    assert (
        now.state is State.DEAD
        and "began as a wait of another kind (signal)" in now.error["message"]
    )


# Redrive, erase, prune


async def test_a_redrive_gives_a_wait_that_timed_out_its_full_time_again(ol: Outlast) -> None:
    """R246: what other waits gave is kept."""
    asked = []

    @ol.task(retry=ONCE)
    async def asks(ctx: Context) -> list[Any]:
        first = await ctx.wait("first")
        asked.append(first)
        return [first, await ctx.wait("second", timeout=0.1 if len(asked) < 2 else "1d")]

    async with work(ol):
        job = await asks.aenqueue()
        await ol.asignal(job.id, "first", 1)
        now = await ended(ol, job)
        assert now.state is State.DEAD and now.error["type"].endswith("SignalTimeout")
        await ol.aretry(job.id)
        await waiting(ol, job, "signal second")
        await ol.asignal(job.id, "second", 2)
        assert await ol.aresult(job.id, timeout=30) == [1, 2]


async def test_waits_and_signals_go_with_their_job(ol: Outlast, database: Database) -> None:
    """R246: erased and purged with it; cancelled at once."""

    @ol.task
    async def asks(ctx: Context) -> None:
        await ctx.wait("a")
        await ctx.wait("b")

    async with work(ol):
        for remove in (ol.aforget, lambda id: ol.apurge(state="cancelled")):
            job = await asks.aenqueue()
            await ol.asignal(job.id, "a", "secret")
            await ol.asignal(job.id, "c", "secret")
            await waiting(ol, job, "signal b")
            assert (await ol.acancel(job.id)).state is State.CANCELLED
            await remove(job.id)  # type: ignore[no-untyped-call]
            for table in ("wait", "signal"):
                assert sql(database, f"SELECT count(*) FROM {{{table}}}") == [(0,)]


# Lanes, cost


async def test_a_job_that_waits_lets_the_next_of_its_ordered_lane_pass(ol: Outlast) -> None:
    """R240, R245: it holds no slot and no lane; when it goes on, it goes first."""
    ol.queue("ordered", ordered=True)
    done = []

    @ol.task(queue="ordered", lane=lambda n: "a")
    async def waits(n: int, ctx: Context) -> None:
        if n == 0:
            await ctx.sleep(0.3)
            await ctx.wait("go")
        done.append(n)

    async with work(ol):
        first, second = await ol.aenqueue(waits.job(0), waits.job(1))
        await ended(ol, second)
        await waiting(ol, first)
        await ol.asignal(first.id, "go")
        await ended(ol, first)
    assert done == [1, 0]


@pytest.mark.kinds("postgres")
async def test_a_wait_costs_few_statements(ol: Outlast) -> None:
    """R245: a first sleep asks the database nothing: the end of its attempt keeps it."""
    spy = Spy(ol)

    @ol.task
    async def sleeps(ctx: Context) -> None:
        await ctx.sleep(0.1)

    async with work(ol):
        job = await sleeps.aenqueue()
        await ended(ol, job)
    assert spy.counts["begin_waits"] == 1
    assert spy.counts["kept_waits"] == 1
    for name in ("hold_claim", "first_signal", "wake_signalled"):
        assert spy.counts[name] == 0


@pytest.mark.campaign
@pytest.mark.quiet
async def test_a_thousand_jobs_sleep_on_two_slots(ol: Outlast) -> None:
    """R245: 1,000 jobs with three sleeps of 1 s each, on concurrency 2, within 10 s."""

    @ol.task
    async def sleeps(ctx: Context) -> None:
        for _ in range(3):
            await ctx.sleep(1.0)

    jobs = await ol.aenqueue(*(sleeps.job() for _ in range(1000)))
    began = time.monotonic()
    async with ol.worker(concurrency=2):

        async def all_done() -> bool:
            return (await ol.acounts())["succeeded"] == len(jobs)

        await aeventually(all_done, 60.0)
    assert time.monotonic() - began <= 10.0
