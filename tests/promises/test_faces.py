"""Verbs are written once: the blocking and the asyncio face of each do the same."""

from __future__ import annotations

import asyncio
import inspect

import pytest

from outlast import Outlast
from outlast.client.faces import Face, finish, twins

VERBS = sorted(
    name
    for name in vars(Outlast)
    if f"a{name}" in vars(Outlast) and not name.startswith("_") and callable(vars(Outlast)[name])
)
ITERATORS = {"events", "stream"}  # which return one, and await nothing before its first item


def test_there_are_verbs() -> None:
    assert {"job", "jobs", "cancel", "result", "enqueue", "flows", "pause", "workers"} <= {*VERBS}


@pytest.mark.parametrize("name", VERBS)
def test_a_verb_and_its_twin_have_one_signature(name: str) -> None:
    sync, twin = vars(Outlast)[name], vars(Outlast)[f"a{name}"]
    assert not inspect.iscoroutinefunction(sync)
    assert inspect.iscoroutinefunction(twin) == (name not in ITERATORS)
    returns = {"return_annotation": None} if name in ITERATORS else {}
    signatures = (inspect.signature(method).replace(**returns) for method in (sync, twin))
    assert next(signatures) == next(signatures)
    assert next(iter(inspect.signature(sync).parameters)) == "self"
    assert (sync.__name__, twin.__name__) == (name, f"a{name}")


def test_a_blocking_verb_runs_inside_an_event_loop(ol: Outlast) -> None:
    async def main() -> dict[str, int]:
        return ol.counts()

    assert asyncio.run(main()) == asyncio.run(ol.acounts())


def test_a_verb_that_awaits_something_else_is_refused_when_it_blocks() -> None:
    """It would need an event loop; its `finally` runs all the same."""
    ended = []

    async def wrong(on: Face) -> None:
        try:
            await asyncio.sleep(0)
        finally:
            ended.append(True)

    with pytest.raises(RuntimeError, match="awaits only its face"):
        finish(wrong(None))  # type: ignore[arg-type]
    assert ended == [True]


async def add(on: Face, left: int, *, right: int = 1) -> int:
    """Add."""
    return await on.in_thread(lambda: left + right)


class More(Outlast):
    add, aadd = twins(add)


def test_a_new_verb_needs_one_function_and_one_line() -> None:
    more = More("sqlite:///unused.db")  # which is not opened
    assert more.add(2) == asyncio.run(more.aadd(1, right=2)) == 3
    assert More.add.__doc__ == "Add."
    assert str(inspect.signature(more.add)) == "(left: 'int', *, right: 'int' = 1) -> 'int'"
