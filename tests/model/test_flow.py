"""Chains, groups and flows as callers say them."""

from __future__ import annotations

from typing import Any

import pytest

from outlast import InvalidOption
from outlast.model.flow import Flow, as_list, chain, group
from outlast.model.options import Options
from outlast.model.task import Call, TaskDefinition


def work(n: int = 0) -> int:
    return n


def call(n: int = 0, **said: Any) -> Call:
    return Call(TaskDefinition("work", work), Options(**said), (n,), {})


def test_a_chain_that_is_made_longer_stays_what_it_was() -> None:
    """So that it can be the beginning of two."""
    short = chain(call(1))
    one, other = short.then(call(2)), short.then(call(3), call(4), when="finished")
    assert [len(part.parts) for part in (short, one, other)] == [1, 2, 3]
    assert [when for _, when in one.steps()] == [None, None]
    assert [when for _, when in other.steps()] == [None, "finished", "finished"]
    longer = other.then(call(5))
    assert [when for _, when in longer.steps()] == [None, "finished", "finished", None]


def test_after_takes_one_or_many_of_anything() -> None:
    node = Flow().add(call())
    for alone in ("a", node, node.call):
        assert as_list(alone) == [alone]
    assert as_list(None) == as_list(()) == []
    assert as_list(iter(["a", node])) == ["a", node]


@pytest.mark.parametrize(("said", "after"), [(False, None), (True, 1), (1, 1), (5, 5)])
def test_how_many_failures_break_a_group(said: bool | int, after: int | None) -> None:
    """R097, R120"""
    assert group(call(), fail_fast=said).fail_after == after
    assert Flow(fail_fast=said).fail_after == after


def test_what_is_no_call_is_refused_at_once() -> None:
    """With its place, and not when the flow is enqueued."""
    for wrong in (work, work(), None, "work"):
        with pytest.raises(InvalidOption, match=r"takes task\.job"):
            Flow().add(wrong)  # type: ignore[arg-type]
        with pytest.raises(InvalidOption, match="number 1"):
            group(call(), wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="when"):
        Flow().add(call(), when="sometime")
    with pytest.raises(InvalidOption, match="flow"):
        call(flow="the big one")
