"""How a batch is declared, and how the item that spoils a call is found."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from outlast import BatchContext, BatchFailed, Context, InvalidArguments, InvalidInput, Outlast
from outlast.model.batch import MAX_FAILED_CALLS, Bisection, batch_failure_problem


def searched(number: int, bad: set[int], last_try: bool = False) -> tuple[set[int], set[int], int]:
    """Which items failed alone, which were given up together, and how many calls that took."""
    search = Bisection(range(number))
    alone: set[int] = set()
    given_up: set[int] = set()
    calls = 0
    while (part := search.next()) is not None:
        calls += 1
        if not bad & set(part):
            search.succeeded()
            continue
        search.failed(part)
        alone |= set(part) if len(part) == 1 else set()
        given_up |= set(search.abandon_hopeless(lambda _: last_try))
    return alone, given_up, calls


@pytest.mark.parametrize("number", [2, 3, 7, 100, 500, 1000])
def test_one_bad_item_is_found_wherever_it_stands_in_a_few_calls(number: int) -> None:
    """R056: 2·log₂(n) calls beside the first, also for the first and the last item."""
    for bad in {0, 1, number // 2, number - 1}:
        alone, given_up, calls = searched(number, {bad})
        assert (alone, given_up) == ({bad}, set())
        assert calls <= 1 + 2 * math.ceil(math.log2(number))


def test_any_eight_bad_items_are_found() -> None:
    """R056: however they are spread, none of the good ones is taken for bad."""
    luck = random.Random(56)
    for _ in range(200):
        bad = set(luck.sample(range(256), 8))
        assert searched(256, bad)[:2] == (bad, set())
    spread = set(range(0, 256, 32))
    assert searched(256, spread)[:2] == (spread, set())


def test_an_outage_is_not_searched_to_the_end() -> None:
    """R054: when every call fails, the rest is given up soon."""
    alone, given_up, calls = searched(1000, set(range(1000)))
    assert calls == MAX_FAILED_CALLS + 1
    assert alone | given_up == set(range(1000))


def test_an_item_that_would_die_of_it_is_never_given_up() -> None:
    """R056: with no other try, each has to fail by itself."""
    assert searched(100, set(range(100)), last_try=True)[:2] == (set(range(100)), set())


def test_indexes_that_are_none_are_named() -> None:
    assert batch_failure_problem(BatchFailed({0: "a", 9: "b"}), 10) is None
    assert batch_failure_problem(BatchFailed({10: "a"}), 10) == (
        "BatchFailed names item 10: this call had items 0 to 9"
    )
    assert "item -1" in (batch_failure_problem(BatchFailed({-1: ValueError()}), 10) or "")
    assert "not a list of 2" in (batch_failure_problem(BatchFailed({0: "a"}, results=[1]), 2) or "")
    with pytest.raises(TypeError, match=r"not \{'a': 'b'\}"):
        BatchFailed({"a": "b"})  # type: ignore[dict-item]


def no_list(item: int) -> None: ...
def nothing() -> None: ...
def unsaid(items) -> None: ...  # type: ignore[no-untyped-def]
def two_lists(items: list[int], more: list[int]) -> None: ...
def wrong_context(items: list[int], ctx: Context) -> None: ...
def more_of_it(items: list[int], **more: Any) -> None: ...


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        (no_list, "the parameter item must be a list of items, such as list"),
        (nothing, "the parameter items is missing: a batch task takes a list"),
        (unsaid, "the parameter items must be a list of items"),
        (two_lists, "the parameter more is one too many"),
        (wrong_context, "the parameter ctx is one too many: .* a BatchContext"),
        (more_of_it, r"the parameter \*\*kwargs is one too many"),
    ],
)
def test_a_function_that_takes_no_list_is_refused_where_it_is_defined(
    function: Any, sentence: str
) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        Outlast("sqlite:///never-opened.db").task(batch=10)(function)


def takes_items(items: list[int]) -> None: ...


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ({"batch": 0}, "batch must be a whole number from 1 to 10000, not 0"),
        ({"batch": 2.5}, "batch must be a whole number"),
        ({"batch": True}, "batch must be a whole number"),
        ({"batch": 10, "wait": -1}, "wait must be a duration"),
        ({"batch": 10, "wait": 61}, "wait must be at most 60 seconds"),
        ({"wait": 1}, "wait is for batch tasks: give batch=… as well"),
        ({"batch": 10, "isolated": True}, "isolated is not for batch tasks"),
    ],
)
def test_what_cannot_be_is_refused_with_a_sentence(said: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        Outlast("sqlite:///never-opened.db").task(**said)(takes_items)


def test_a_job_brings_one_item_and_every_problem_of_it_is_named() -> None:
    """R141: by the type that the list is said to hold."""
    ol = Outlast("sqlite:///never-opened.db")

    @ol.task(batch=10)
    def publish(messages: list[dict[str, int]], ctx: BatchContext | None = None) -> int:
        return len(messages)

    assert publish([{"a": 1}, {"b": 2}]) == 2, "a plain call is a plain call"
    assert publish.job({"a": 1}).new_job().args == '{"item":{"a":1}}'
    assert publish.job(item={"a": 1}).new_job().args == '{"item":{"a":1}}'
    with pytest.raises(InvalidArguments) as caught:
        publish.job({"a": "x", "b": "y"}).new_job()
    assert [problem.path for problem in caught.value.problems] == ["item.a", "item.b"]
    with pytest.raises(InvalidArguments, match="messages: is unexpected: publish takes item"):
        publish.job(messages=[{"a": 1}]).new_job()
