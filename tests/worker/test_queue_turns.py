"""The turn order of queues: what it costs, who rests, and what ends a rest."""

from __future__ import annotations

import time
from collections import Counter

from outlast.model.settings import WorkerSettings
from outlast.ops.claim import Wanted
from outlast.worker.lookout import Lookout
from outlast.worker.queue_turns import QueueTurns
from tests.support import eventually

WORK: Counter[str] = Counter()


class Name(str):
    """A queue's name that counts how often it is hashed or compared."""

    __slots__ = ()

    def __hash__(self) -> int:
        WORK["hash"] += 1
        return super().__hash__()

    def __eq__(self, other: object) -> bool:
        WORK["compare"] += 1
        return super().__eq__(other)

    def __lt__(self, other: str) -> bool:
        WORK["compare"] += 1
        return super().__lt__(other)

    def __gt__(self, other: str) -> bool:
        WORK["compare"] += 1
        return super().__gt__(other)


def test_a_turn_costs_the_same_with_ten_thousand_queues() -> None:
    """R216, R020: counted in hashes and comparisons of names, not in time."""

    def cost(number: int) -> float:
        lookout = Lookout(None, WorkerSettings())
        lookout._note([Name(f"q{n}") for n in range(number)])
        WORK.clear()
        turns = 50
        for _ in range(turns):
            first, *others = lookout.next()
            asked = Wanted("w", first, 1, 9.0, others=tuple(others))
            lookout.claimed(asked, [])
        return sum(WORK.values()) / turns

    assert cost(100_000) <= 1.5 * cost(10_000)


def test_queues_take_turns() -> None:
    """R020: each is asked once before any is asked again."""
    turns = QueueTurns(0.01, 1.0)
    for queue in "bca":
        turns.found(queue)
    order = []
    for _ in range(7):
        queue = turns.next()
        assert queue is not None
        order.append(queue)
        turns.gave(queue)
        turns.found(queue)  # a full batch: there may be more
    assert "".join(order) == "bcabcab"


def test_a_queue_that_gave_nothing_rests_longer_each_time_and_news_end_that() -> None:
    """R216: a look does not bring it back before its time; the word that it has something does."""
    turns = QueueTurns(0.01, 60.0)
    rests = []
    for _ in range(6):
        turns.heard("junk")
        assert turns.next() == "junk"
        turns.gave_nothing("junk")
        turns.found("junk")
        rests.append(turns.until_rested())
        assert len(turns) == 0
    assert rests[-1] > 10 * rests[0] > 0
    turns.heard("junk")
    assert turns.next() == "junk"
    turns.gave("junk")
    turns.gave_nothing("junk")
    turns.found("junk")
    assert turns.until_rested() <= 0.01, "what gave something begins with a short rest again"


def test_a_rested_queue_joins_the_line_without_a_further_look() -> None:
    """R216: no rest is longer than `longest`, and none is for ever."""
    turns = QueueTurns(0.01, 0.05)
    for _ in range(20):
        turns.heard("junk")
        turns.next()
        turns.gave_nothing("junk")
    turns.found("junk")
    before = time.monotonic()
    eventually(lambda: turns.next() == "junk")
    assert time.monotonic() - before < 1.0


def test_news_that_come_while_a_queue_is_asked_are_not_lost() -> None:
    """R216, R020: it gave nothing, but something came since."""
    turns = QueueTurns(60.0, 60.0)
    turns.heard("q")
    assert turns.next() == "q"
    turns.heard("q")
    turns.gave_nothing("q")
    assert turns.next() == "q"


def test_a_queue_that_is_told_to_rest_is_deaf_to_news() -> None:
    """R019, R216: it rests for its time, and then it is asked, found or not."""
    lookout = Lookout(None, WorkerSettings())
    lookout.hear("q")
    lookout.rest("q", 0.2)
    lookout.hear("q")
    assert lookout.next() == ()
    assert 0 < lookout._turns.until_rested() <= 0.2
    eventually(lambda: lookout.next() == ("q",))


def test_of_queues_that_are_gone_nothing_is_kept() -> None:
    """R216: names come and go for as long as a worker lives."""
    turns = QueueTurns(0.0, 0.0)
    for n in range(100):
        turns.heard(f"q{n}")
        turns.next()
        turns.gave_nothing(f"q{n}")
    turns.forget_all_but({"q7"})
    assert list(turns._rests) == ["q7"]
