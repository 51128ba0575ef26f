"""Many at once: threads or tasks that all start together, and whatever they raise."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar
from urllib.parse import quote

from outlast.ops.operation import Op
from outlast.store import Store

T = TypeVar("T")

# A planner that has no other way than to ask a sub-select again for every row.
NESTED_LOOPS = "?options=" + quote(
    "-c enable_hashjoin=off -c enable_mergejoin=off -c enable_hashagg=off -c enable_material=off"
    " -c enable_sort=off"
)


def all_at_once(number: int, act: Callable[[int], T]) -> list[T]:
    """act(0), act(1), … in so many threads, started together; the first error is raised."""
    start = threading.Barrier(number)

    def one(n: int) -> T:
        start.wait(30)
        return act(n)

    with ThreadPoolExecutor(number) as threads:
        futures = [threads.submit(one, n) for n in range(number)]
        return [future.result() for future in futures]


def race(rounds: int, *rivals: Callable[[int], Any]) -> list[list[Any]]:
    """Every rival in a thread of its own, each round begun by all at the same moment; the answers
    of each rival, round by round."""
    gate = threading.Barrier(len(rivals))

    def all_rounds(n: int) -> list[Any]:
        answers = []
        for round in range(rounds):
            gate.wait(60)
            answers.append(rivals[n](round))
        return answers

    return all_at_once(len(rivals), all_rounds)


def run_together(
    store: Store, colour: str, operations: Iterable[tuple[Callable[..., Any], tuple[Any, ...]]]
) -> list[Any]:
    """Each operation in a thread of its own, or all as tasks of one event loop."""
    wanted = list(operations)
    if colour == "blocking":
        return all_at_once(len(wanted), lambda n: store.run(wanted[n][0], *wanted[n][1]))

    async def gather() -> list[Any]:
        try:
            return await asyncio.gather(*(store.arun(op, *args) for op, args in wanted))
        finally:
            await store.aclose()

    return asyncio.run(gather())


def interposed(op: Op[T], before: str, act: Callable[[], Any]) -> Op[T]:
    """An operation that is overtaken: `act` comes just before its first statement of that name."""
    answer, left = None, [act]
    while True:
        try:
            step = op.send(answer)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        if left and getattr(step, "name", "") == before:
            left.pop()()
        answer = yield step
