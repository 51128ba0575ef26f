"""One batch of an outbox: chunks, order per key, outcomes by position, errors of whole calls."""

from __future__ import annotations

import asyncio

import pytest

from outlast import Breaker, InvalidInput, Permanent, RetryLater
from outlast.bridges import Bad, Limits, Message, Retry, SinkDown
from outlast.bridges.relay import MAX_FAILED_CALLS, Failures, relay
from outlast.model.errors import NotAttempted
from tests.bridges.own_bridges import ListSink


def sent_to(sink: ListSink, messages: list[Message]) -> Failures:
    return asyncio.run(relay(messages, sink.send, sink.limits, Breaker()))


def numbered(count: int, key: str | None = None) -> list[Message]:
    return [Message(str(n), b"%d" % n, key) for n in range(count)]


def test_a_call_has_no_more_items_and_bytes_than_the_sink_takes() -> None:
    """R123: SQS takes ten messages, and 256 KiB of all together."""
    sink = ListSink(limits=Limits(items=10, bytes=25))
    messages = [Message(str(n), b"x" * 5) for n in range(23)]
    assert sent_to(sink, messages) == {}
    assert [len(call) for call in sink.calls] == [5, 5, 5, 5, 3]
    assert [message.id for message in sink.sent] == [message.id for message in messages]


def test_headers_and_keys_count_as_bytes() -> None:
    message = Message("1", b"12345", "key", {"name": "value"})
    assert message.size == 5 + 3 + 4 + 5


def test_a_message_that_no_call_can_take_is_dead_alone() -> None:
    sink = ListSink(limits=Limits(bytes=10))
    failures = sent_to(sink, [Message("a", b"1"), Message("b", b"x" * 11), Message("c", b"2")])
    assert isinstance(failures[1], Permanent) and "11 bytes" in str(failures[1])
    assert [message.id for message in sink.sent] == ["a", "c"]


def test_outcomes_are_told_by_position() -> None:
    """R055, R124: one bad, one to be retried, the others are sent."""
    answers = {"3": Bad("no such field"), "5": Retry("slow down", after=7.0)}
    sink = ListSink(lambda message: answers.get(message.id))
    failures = sent_to(sink, numbered(10))
    assert set(failures) == {3, 5}
    assert isinstance(failures[3], Permanent) and str(failures[3]) == "no such field"
    retried = failures[5]
    assert isinstance(retried, RetryLater) and (retried.seconds, retried.spent) == (7.0, True)
    assert len(sink.sent) == 8


def test_one_message_of_a_key_is_sent_at_a_time() -> None:
    """R123: a sink that fails one message of a call has not sent a later one of its key."""
    messages = [Message(f"{key}{n}", b"", key) for n in range(3) for key in "ab"]
    sink = ListSink()
    assert sent_to(sink, messages) == {}
    assert [[m.id for m in call] for call in sink.calls] == [
        ["a0", "b0"],
        ["a1", "b1"],
        ["a2", "b2"],
    ]


def test_after_a_failure_the_later_messages_of_its_key_are_not_sent() -> None:
    """R123: they go back unspent; other keys go on."""
    messages = [Message(f"{key}{n}", b"", key) for n in range(4) for key in "ab"]
    sink = ListSink(lambda message: Retry("not now") if message.id == "a1" else None)
    failures = sent_to(sink, messages)
    assert [m.id for m in sink.sent if m.key == "a"] == ["a0"]
    assert [m.id for m in sink.sent if m.key == "b"] == ["b0", "b1", "b2", "b3"]
    kinds = {messages[place].id: type(error) for place, error in failures.items()}
    assert kinds == {"a1": RetryLater, "a2": NotAttempted, "a3": NotAttempted}


def test_a_bad_message_lets_the_next_one_of_its_key_pass() -> None:
    sink = ListSink(lambda message: Bad("never") if message.id == "1" else None)
    failures = sent_to(sink, numbered(4, "k"))
    assert set(failures) == {1} and [m.id for m in sink.sent] == ["0", "2", "3"]


def test_a_sink_that_keeps_the_order_is_given_all_messages_of_a_key_at_once() -> None:
    sink = ListSink(limits=Limits(keeps_order=True))
    sent_to(sink, numbered(100, "k"))
    assert [len(call) for call in sink.calls] == [100]


def test_calls_may_be_made_at_once() -> None:
    under_way = most = 0

    async def send(messages: object) -> list[None]:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.01)
        under_way -= 1
        return [None]

    asyncio.run(relay(numbered(12), send, Limits(items=1, parallel=4), Breaker()))
    assert most == 4


def test_a_call_that_raises_is_made_again_in_halves_until_the_culprit_is_alone() -> None:
    """R056: a sink that raises for the whole call does not punish the other messages."""

    def answer(message: Message) -> None:
        if message.id == "250":
            raise ValueError("cannot be encoded")

    sink = ListSink(answer)
    failures = sent_to(sink, numbered(500))
    assert set(failures) == {250} and isinstance(failures[250], ValueError)
    assert len({message.id for message in sink.sent}) == 499
    assert len(sink.calls) < 25


@pytest.mark.parametrize(
    "error", [SinkDown("away"), ConnectionError("reset"), TimeoutError("late")]
)
def test_a_sink_that_is_down_is_called_once(error: Exception) -> None:
    """R054, R223: no message is at fault, and none of the others is tried."""

    def answer(message: Message) -> None:
        raise error

    sink = ListSink(answer, Limits(items=10))
    failures = sent_to(sink, numbered(100))
    assert len(sink.calls) == 1 and len(failures) == 100
    assert all(isinstance(one, SinkDown) for one in failures.values())


def test_messages_that_were_sent_before_the_sink_went_down_are_not_sent_again() -> None:
    def answer(message: Message) -> None:
        if int(message.id) >= 20:
            raise SinkDown("away")

    sink = ListSink(answer, Limits(items=10))
    failures = sent_to(sink, numbered(50))
    assert sorted(failures) == list(range(20, 50)) and len(sink.calls) == 3


def test_a_sink_that_fails_whatever_it_is_given_is_down() -> None:
    """R223: plain exceptions of a whole batch count as an outage, too."""

    def answer(message: Message) -> None:
        raise ValueError("unforeseen")

    sink = ListSink(answer)
    failures = sent_to(sink, numbered(1000))
    assert len(sink.calls) <= MAX_FAILED_CALLS + 1
    down = [error for error in failures.values() if isinstance(error, SinkDown)]
    assert len(down) >= 990


def test_a_sink_that_returns_something_else_is_told_so() -> None:
    async def short(messages: object) -> list[None]:
        return []

    async def odd(messages: object) -> list[object]:
        return ["ok"]

    for send, told in ((short, "0 outcomes for 1"), (odd, "None, Retry or Bad")):
        (error,) = asyncio.run(relay(numbered(1), send, Limits(), Breaker())).values()  # type: ignore[arg-type]
        assert isinstance(error, InvalidInput) and told in str(error)
