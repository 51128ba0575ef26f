"""One batch of an outbox: chunks, order per key, outcomes by position, errors of whole calls."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from outlast import Breaker, Permanent, RetryLater
from outlast.bridges import Bad, Limits, Message, Retry, SinkDown
from outlast.bridges.relay import MAX_FAILED_CALLS, Failures, Pace, relay
from outlast.model.errors import NotAttempted
from tests.bridges.own_bridges import ListSink


def sent_to(sink: ListSink, messages: list[Message]) -> Failures:
    return asyncio.run(relay(messages, sink.send, sink.limits, Breaker(), Pace()))


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

    asyncio.run(relay(numbered(12), send, Limits(items=1, parallel=4), Breaker(), Pace()))
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
    ("error", "calls"), [(SinkDown("away"), 1), (ConnectionError("reset"), 3), (TimeoutError(), 4)]
)
def test_a_sink_that_is_down_is_called_no_more(error: Exception, calls: int) -> None:
    """R054, R223: no message is at fault, and none of the others is tried. Without the word of the
    sink, both halves have to fail as well; after a time-out, one message, too."""

    def answer(message: Message) -> None:
        raise error

    sink = ListSink(answer, Limits(items=10))
    failures = sent_to(sink, numbered(100))
    assert len(sink.calls) == calls and len(failures) == 100
    assert all(isinstance(one, SinkDown) for one in failures.values())


@pytest.mark.parametrize("culprit", [0, 3, 7])
def test_a_message_that_breaks_the_connection_does_not_hold_up_the_others(culprit: int) -> None:
    """R056: it is charged, and the others are sent."""

    def answer(message: Message) -> None:
        if message.id == str(culprit):
            raise ConnectionError("reset by this message")

    sink = ListSink(answer)
    failures = sent_to(sink, numbered(8))
    assert set(failures) == {culprit} and isinstance(failures[culprit], ConnectionError)
    assert {message.id for message in sink.sent} == {str(n) for n in range(8)} - {str(culprit)}


def test_a_call_that_is_too_large_to_end_in_time_is_made_in_halves() -> None:
    """R032: the sink takes up to 60 messages in time."""

    class Slow(ListSink):
        async def send(self, messages: Sequence[Message]) -> list[Bad | Retry | None]:
            if len(messages) > 60:
                raise TimeoutError
            return await super().send(messages)

    sink = Slow()
    assert sent_to(sink, numbered(100)) == {}
    assert [int(message.id) for message in sink.sent] == list(range(100))


@pytest.mark.parametrize("in_time", [1, 3, 20])
def test_a_sink_that_is_slower_than_half_a_batch_is_not_down(in_time: int) -> None:
    """R032, R054: all is sent, once and in order of each key; the next batch is sent in calls that
    end in time."""

    class Slow(ListSink):
        late = 0

        async def send(self, messages: Sequence[Message]) -> list[Bad | Retry | None]:
            if len(messages) > in_time:
                self.late += 1
                raise TimeoutError
            return await super().send(messages)

    sink, pace = Slow(limits=Limits(keeps_order=True)), Pace("orders")
    given = [Message(str(n), b"1", key=f"k{n % 7}") for n in range(100)]
    for number in (100, 200):
        assert asyncio.run(relay(given, sink.send, sink.limits, Breaker(), pace)) == {}
        assert len(sink.sent) == number
        late, sink.late = sink.late, 0
        assert late <= (4 if number == 100 else 0)
        for key in range(7):
            ids = [int(one.id) for one in sink.sent[number - 100 :] if one.key == f"k{key}"]
            assert ids == sorted(ids)


@pytest.mark.parametrize("gone", [False, True])
def test_a_slow_sink_may_meet_a_bad_message_or_go_away(gone: bool) -> None:
    """R054, R056: a message that is never taken in time is charged alone; when nothing is, the sink
    is down, and nobody is charged."""

    class Slow(ListSink):
        async def send(self, messages: Sequence[Message]) -> list[Bad | Retry | None]:
            away = gone and len(self.sent) >= 50
            if away or len(messages) > 3 or "42" in {message.id for message in messages}:
                raise TimeoutError
            return await super().send(messages)

    sink = Slow()
    failures = sent_to(sink, numbered(100))
    kinds = {place: type(error) for place, error in failures.items() if place != 42}
    assert isinstance(failures[42], TimeoutError)
    assert set(kinds.values()) == ({SinkDown} if gone else set())
    assert len(failures) + len(sink.sent) == 100 and len(sink.calls) < 60


def test_a_search_for_an_outage_keeps_the_order_of_a_key() -> None:
    """R123: of a sink that takes many messages of a key at once."""
    broken = 1

    class Once(ListSink):
        async def send(self, messages: Sequence[Message]) -> list[Bad | Retry | None]:
            nonlocal broken
            if len(messages) > 2 or (broken and messages[0].id == "a0"):
                broken -= len(messages) <= 2
                raise ConnectionError("reset")
            return await super().send(messages)

    sink = Once(limits=Limits(keeps_order=True))
    messages = [Message(id, b"", id[0]) for id in ("a0", "b0", "a1", "c0")]
    sent_to(sink, messages)
    sent = [message.id for message in sink.sent]
    assert "c0" in sent and sent.index("c0") == 0
    assert [id for id in sent if id[0] == "a"] == ["a0", "a1"]


def test_calls_that_share_a_key_are_not_made_at_once() -> None:
    """R123: `parallel` is for different keys, also where the sink keeps the order."""
    under_way: list[str] = []
    sent: list[str] = []
    most = 0

    async def send(messages: Sequence[Message]) -> list[None]:
        nonlocal most
        keys = [str(message.key) for message in messages]
        assert not set(keys) & set(under_way), "two calls with one key"
        under_way.extend(keys)
        most = max(most, len(under_way))
        await asyncio.sleep(0.01 if len(sent) % 2 else 0.02)
        for message in messages:
            under_way.remove(str(message.key))
            sent.append(message.id)
        return [None] * len(messages)

    messages = [Message(f"{key}{n}", b"", key) for n in range(4) for key in "aab"]
    limits = Limits(items=1, parallel=4, keeps_order=True)
    assert asyncio.run(relay(messages, send, limits, Breaker(), Pace())) == {}
    assert most == 2 and len(sent) == 12


def test_messages_that_were_sent_before_the_sink_went_down_are_not_sent_again() -> None:
    def answer(message: Message) -> None:
        if int(message.id) >= 20:
            raise SinkDown("away")

    sink = ListSink(answer, Limits(items=10))
    failures = sent_to(sink, numbered(50))
    assert sorted(failures) == list(range(20, 50)) and len(sink.calls) == 3


def test_an_error_of_every_call_is_left_to_the_worker() -> None:
    """R223: which tells bad messages from an outage."""

    def answer(message: Message) -> None:
        raise ValueError("unforeseen")

    sink = ListSink(answer)
    with pytest.raises(ValueError, match="unforeseen"):
        sent_to(sink, numbered(1000))
    assert len(sink.calls) <= MAX_FAILED_CALLS + 1


def test_many_bad_messages_beside_good_ones_are_charged_one_by_one() -> None:
    """R056: those that were not tried go back unspent, and have their turn in the next batch."""

    def answer(message: Message) -> None:
        if int(message.id) >= 50:
            raise ValueError("bad")

    sink = ListSink(answer)
    failures = sent_to(sink, numbered(100))
    assert sorted(failures) == list(range(50, 100))
    kinds = {type(error) for error in failures.values()}
    assert kinds == {ValueError, NotAttempted}
    assert {message.id for message in sink.sent} == {str(n) for n in range(50)}


@pytest.mark.parametrize(
    ("returned", "told"),
    [
        (None, "returned None for 1 messages"),
        ([], "0 outcomes for 1"),
        (["ok"], "None, Retry or Bad"),
        ([Retry("later", after=-1)], "after=-1"),
        ([Retry("later", after="soon")], "after='soon'"),  # type: ignore[arg-type]
    ],
)
def test_a_sink_that_returns_something_else_is_told_so(returned: object, told: str) -> None:
    """And is not called for ever: whatever it sent would be sent each time."""
    calls = 0

    async def send(messages: object) -> object:
        nonlocal calls
        calls += 1
        return returned

    (error,) = asyncio.run(relay(numbered(1), send, Limits(), Breaker(), Pace())).values()  # type: ignore[arg-type]
    assert isinstance(error, Permanent) and told in str(error) and calls == 1
