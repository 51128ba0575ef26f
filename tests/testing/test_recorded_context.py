"""A handler is called directly with a context that records what it does."""

from __future__ import annotations

import pytest

from outlast import Context, InvalidOption, Outlast, Unsupported
from outlast.testing import context

ol = Outlast("sqlite:///unused.db")


@ol.task
def other(n: int) -> None: ...


@ol.task
def handler(n: int, ctx: Context) -> int:
    ctx.progress(1, 2, "half")
    ctx.log("begun", size=n)
    ctx.enqueue(other.using(queue="slow").job(n))
    return int(ctx.step("double", lambda: n * 2)) + sum(ctx.results())


def test_a_handler_reports_into_its_context() -> None:
    ctx = context()
    assert handler(4, ctx) == 8
    assert ctx.progressed == [(1, 2, "half")]
    assert ctx.logged == [{"message": "begun", "size": 4}]
    assert ctx.enqueued == [("other", {"n": 4}, "slow")]
    assert ctx.kept_steps == {"double": 8}


def test_steps_of_earlier_attempts_and_results_of_prerequisites_are_given() -> None:
    ctx = context(attempt=2, steps={"double": 100}, results=[1, 2])
    assert handler(4, ctx) == 103
    assert ctx.attempt == 2


async def test_an_async_handler_awaits_its_steps() -> None:
    async def call() -> list[int]:
        return [1]

    ctx = context()
    assert await ctx.step("call", call) == [1]
    assert [value async for value in context(results=["a"]).results()] == ["a"]


def test_the_job_has_the_facts_that_are_given() -> None:
    ctx = context({"n": 4}, task="handler", tenant="acme", lane="eu")
    assert (ctx.job.task, ctx.job.tenant, ctx.job.args) == ("handler", "acme", {"n": 4})
    assert not ctx.cancelled.is_set()
    ctx.slow_down(30)
    assert ctx.slowed_down == [30.0]


def test_mistakes_are_refused_as_in_a_worker() -> None:
    ctx = context()
    with pytest.raises(InvalidOption):
        ctx.slow_down(30)  # no lane
    with pytest.raises(Unsupported, match="drain"):
        ctx.completing()
    with pytest.raises(TypeError, match="no 'tenannt'"):
        context(tenannt="acme")
