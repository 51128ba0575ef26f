"""The turn order of queues: what it costs, who rests, and what ends a rest."""

from __future__ import annotations

import time
from collections import Counter

from outlast.model.claim import Claim
from outlast.model.settings import WorkerSettings
from outlast.ops.claim import ClaimRequest
from outlast.worker.poller import FEW_TOGETHER, Poller
from outlast.worker.queue_rotation import QueueRotation
from tests.support import eventually

WORK: Counter[str] = Counter()
GIVEN = Claim(*[None] * len(Claim._fields))._replace(priority=0, run_at=0.0, id="j")  # type: ignore[arg-type]


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
        lookout = Poller(None, WorkerSettings())
        lookout._add_pending([Name(f"q{n}") for n in range(number)])
        WORK.clear()
        turns = 50
        for _ in range(turns):
            first, *others = lookout.next_queues()
            asked = ClaimRequest("w", first, 1, 9.0, other_queues=tuple(others))
            lookout.claimed(asked, [])
        return sum(WORK.values()) / turns

    assert cost(100_000) <= 1.5 * cost(10_000)


def test_queues_take_turns() -> None:
    """R020: each is asked once before any is asked again."""
    turns = QueueRotation(0.01, 1.0)
    for queue in "bca":
        turns.found(queue)
    order = []
    for _ in range(7):
        queue = turns.next()
        assert queue is not None
        order.append(queue)
        turns.had_jobs(queue)
        turns.found(queue)  # a full batch: there may be more
    assert "".join(order) == "bcabcab"


def test_a_queue_that_gave_nothing_rests_longer_each_time_and_news_end_that() -> None:
    """R216: a look does not bring it back before its time; the word that it has something does."""
    turns = QueueRotation(0.01, 60.0)
    rests = []
    for _ in range(6):
        turns.notified("junk")
        assert turns.next() == "junk"
        turns.was_empty("junk")
        turns.found("junk")
        rests.append(turns.until_backoff_end())
        assert len(turns) == 0
    assert rests[-1] > 10 * rests[0] > 0
    turns.notified("junk")
    assert turns.next() == "junk"
    turns.had_jobs("junk")
    turns.was_empty("junk")
    turns.found("junk")
    assert turns.until_backoff_end() <= 0.01, "what gave something begins with a short rest again"


def test_a_rested_queue_joins_the_line_without_a_further_look() -> None:
    """R216: no rest is longer than `longest`, and none is for ever."""
    turns = QueueRotation(0.01, 0.05)
    for _ in range(20):
        turns.notified("junk")
        turns.next()
        turns.was_empty("junk")
    turns.found("junk")
    before = time.monotonic()
    eventually(lambda: turns.next() == "junk")
    assert time.monotonic() - before < 1.0


def test_news_that_come_while_a_queue_is_asked_are_not_lost() -> None:
    """R216, R020: it gave nothing, but something came since."""
    turns = QueueRotation(60.0, 60.0)
    turns.notified("q")
    assert turns.next() == "q"
    turns.notified("q")
    turns.was_empty("q")
    assert turns.next() == "q"


def test_a_queue_that_is_told_to_rest_is_deaf_to_news() -> None:
    """R019, R216: it rests for its time, and then it is asked, found or not."""
    lookout = Poller(None, WorkerSettings())
    lookout.notify("q")
    lookout.back_off("q", 0.2)
    lookout.notify("q")
    assert lookout.next_queues() == ()
    assert 0 < lookout._rotation.until_backoff_end() <= 0.2
    eventually(lambda: lookout.next_queues() == ("q",))


def test_of_queues_that_are_gone_nothing_is_kept() -> None:
    """R216: names come and go for as long as a worker lives."""
    turns = QueueRotation(0.0, 0.0)
    for n in range(100):
        turns.notified(f"q{n}")
        turns.next()
        turns.was_empty(f"q{n}")
    turns.forget_all_but({"q7"})
    assert list(turns._backoffs) == ["q7"]


def asked(lookout: Poller, limit: int, took: float = 0.0, **stock: int) -> tuple[str, ...]:
    """The queues of one claim, which gives what they have in stock, or as much as is wanted."""
    first, *others = lookout.next_queues()
    wanted = ClaimRequest("w", first, limit, 9.0, other_queues=tuple(others))
    most = wanted.per_queue_limit if others else limit
    given = [queue for queue in wanted.queues for _ in range(min(most, stock.get(queue, most)))]
    lookout.claimed(wanted, [GIVEN._replace(queue=queue) for queue in given[:limit]], took)
    return wanted.queues


def test_queues_that_give_their_fill_are_asked_a_few_together() -> None:
    """R216: first one job of each of many; then several of each of a few, in turn, and none is
    forgotten where the limit cuts its answer short."""
    lookout = Poller(None, WorkerSettings())
    lookout._add_pending([f"q{n:03}" for n in range(200)])
    assert [len(asked(lookout, 32)) for _ in range(7)] == [100, 100, 100, 100, 72, 40, 8]
    told = [asked(lookout, 32) for _ in range(200 // FEW_TOGETHER)]
    assert {len(queues) for queues in told[1:]} == {FEW_TOGETHER}
    assert len(lookout._rotation) == 200
    assert len({queue for queues in told for queue in queues}) >= 190


def test_a_queue_that_gives_its_fill_has_a_turn_of_its_own_in_a_short_line() -> None:
    """R216: for as much as there is room, and it goes on from its place."""
    lookout = Poller(None, WorkerSettings())
    lookout._add_pending(["a", "b", "c", "d", "e", "f"])
    told = [asked(lookout, 32) for _ in range(30)]
    assert {len(queues) for queues in told[-6:]} == {1}
    assert {queue for queues in told[-6:] for queue in queues} == set("abcdef")


def test_claims_in_vain_leave_most_of_the_time_to_queues_that_give() -> None:
    """R216: after one, a queue that gave its fill comes before hundreds of junk, for a while; then
    the line goes on, so that no queue starves."""
    lookout = Poller(None, WorkerSettings())
    junk = {f"junk{n}": 0 for n in range(500)}
    lookout._add_pending(["good", *junk])
    assert asked(lookout, 4, **junk)[0] == "good"
    assert "good" not in asked(lookout, 4, took=60.0, **junk)
    for _ in range(5):
        assert asked(lookout, 4, **junk) == ("good",)
    lookout._prefer_full_until = 0.0
    assert "good" not in asked(lookout, 4, **junk)
