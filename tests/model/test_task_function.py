"""Which callables are accepted as tasks: what is, runs; what is not, is refused when declared."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from functools import partial, wraps
from typing import Any

import pytest

from outlast import InvalidInput, Outlast
from tests.support import Database


def numbers(upto: int) -> Iterator[int]:
    yield from range(upto)


async def anumbers(upto: int) -> AsyncIterator[int]:
    for number in range(upto):
        yield number


class Counting:
    """Objects of this class count; the class itself is no task."""

    name = "an attribute with a name of ours"

    def __init__(self, step: int = 1) -> None:
        self.step = step
        self.name = "not a task's"

    def __call__(self, n: int) -> int:
        return n + self.step

    def method(self, n: int) -> int:
        return n + self.step


class Waiting:
    async def __call__(self, n: int) -> int:
        await asyncio.sleep(0)
        return n + 1


class Yielding:
    def __call__(self, n: int) -> Iterator[int]:
        yield n


def add(n: int, more: int) -> int:
    return n + more


async def aadd(n: int, more: int) -> int:
    return n + more


def positional(n: int, /) -> int:
    return n


def any_number(*n: int) -> int:
    return sum(n)


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (numbers, "generator function"),
        (anumbers, "generator function"),
        (partial(numbers, 3), "generator function"),
        (Yielding(), "generator function"),
        (Counting, "is a class"),
        (int, "is a class"),
        (7, "must be a function"),
        (positional, "positional-only"),
        (any_number, "has no names"),
    ],
    ids="generator async_generator partial callable class type number positional args".split(),
)
def test_what_cannot_be_a_task_is_refused_when_it_is_declared(function: Any, reason: str) -> None:
    """A call of a generator function runs nothing, and its job would succeed."""
    ol = Outlast("sqlite:////nowhere/at/all.db")
    with pytest.raises(InvalidInput, match=reason):
        ol.task(name="it")(function)
    assert ol.registry.names() == []


def test_what_has_no_name_must_be_given_one() -> None:
    for function in (partial(add, 1), Counting()):
        with pytest.raises(InvalidInput, match="name must be given"):
            Outlast("sqlite:////nowhere/at/all.db").task(function)


def test_what_is_refused_as_a_task_is_not_called_an_option() -> None:
    ol = Outlast("sqlite:////nowhere/at/all.db")
    with pytest.raises(InvalidInput, match=r"^A task must be a function, not 5\.$"):
        ol.task(5)  # type: ignore[call-overload]
    with pytest.raises(InvalidInput, match=r"not 'it': its name is given with name=…\.$"):
        ol.task("it")  # type: ignore[call-overload]
    with pytest.raises(InvalidInput, match=r"^The task numbers is a generator function"):
        ol.task(numbers)


def test_a_function_that_another_process_cannot_find_cannot_be_isolated() -> None:
    with pytest.raises(InvalidInput, match="isolated is for functions of a module"):
        Outlast("sqlite:////nowhere/at/all.db").task(name="it", isolated=True)(partial(add, 1))


@pytest.mark.kinds("sqlite")
async def test_what_is_accepted_runs(database: Database) -> None:
    """Partials, bound methods, callable objects, sync and async, lambdas, wrapped functions."""
    kinds: dict[str, tuple[Any, Any]] = {
        "partial": (partial(add, more=1), 8),
        "async partial": (partial(aadd, more=1), 8),
        "bound method": (Counting(3).method, 10),
        "callable object": (Counting(2), 9),
        "async callable object": (Waiting(), 8),
        "lambda": (lambda n: n, 7),
        "wrapped": (wraps(add)(lambda n, more=5: n + more), 12),
    }
    async with Outlast(database.url) as ol:
        tasks = {name: ol.task(name=name)(function) for name, (function, _) in kinds.items()}
        for name, (function, _) in kinds.items():
            ol.task(name=name)(function)  # the same once more is no clash
            assert tasks[name].name == name
        given = {"wrapped": {"n": 7, "more": 5}}
        jobs = {
            name: await task.aenqueue(**given.get(name, {"n": 7})) for name, task in tasks.items()
        }
        async with ol.worker():
            results = {name: await ol.aresult(job.id, timeout=20) for name, job in jobs.items()}
    assert results == {name: result for name, (_, result) in kinds.items()}
