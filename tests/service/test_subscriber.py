"""One who follows, by itself: a buffer that is bounded, and positions that never go back."""

from __future__ import annotations

from outlast.ops.event_filter import EventFilter
from outlast.ops.events import JobStatus, StoredEvent
from outlast.protocol import NDJSON, SSE
from outlast.service.events import frames
from outlast.service.events.frames import EventFrame
from outlast.service.events.subscriber import Subscriber

JOB = "0198c1f2-7d1e-7c3a-9f65-2b1f0c3d4e5f"


def told(place: int, kind: str = "progress", data: str = "{}") -> StoredEvent:
    return StoredEvent(place, JOB, 1, 1, kind, data, 0.0, "default", "default", "t")


def standing(state: str, fence: int = 1) -> JobStatus:
    return JobStatus(JOB, state, 1, fence, "w1", "default", "default", "t", None, None)


def give(subscriber: Subscriber, *places: int) -> None:
    for place in places:
        subscriber.push(told(place), frames.event_frame(told(place)))


def live(wanted: EventFilter | None = None, most: int = 10, most_bytes: int = 10**6) -> Subscriber:
    subscriber = Subscriber(wanted or EventFilter(), SSE, most, most_bytes)
    subscriber.go_live(0, 1)
    return subscriber


def test_a_buffer_is_bounded_by_number_and_by_size() -> None:
    """R134: beyond that it is emptied, and its subscriber goes back to the store, to where it was;
    so what waits for somebody who takes nothing is bounded, however much is told."""
    for subscriber in (live(most=10), live(most=1000, most_bytes=2000)):
        give(subscriber, 1)
        subscriber.take(10**6)
        for place in range(2, 1000):
            give(subscriber, place)
            assert subscriber.waiting <= 10
        assert not subscriber.live
        assert (subscriber.position, subscriber.take(10**6)) == (1, b"")


def test_what_was_found_in_the_store_is_not_told_again() -> None:
    """R135"""
    subscriber = live()
    give(subscriber, 1, 2, 3)
    subscriber.position = 2
    assert subscriber.take(10**6) == frames.event_frame(told(3)).sse
    give(subscriber, 3)
    assert subscriber.take(10**6) == b""


def test_a_part_is_never_within_an_event() -> None:
    subscriber = live()
    give(subscriber, 1, 2)
    assert subscriber.take(1) == frames.event_frame(told(1)).sse
    assert subscriber.position == 1
    assert subscriber.take(1) == frames.event_frame(told(2)).sse


def test_how_its_job_stands_is_told_when_it_changes() -> None:
    subscriber = live(EventFilter(job=JOB))
    for state, fence in (("ready", 0), ("ready", 0), ("running", 1), ("running", 1)):
        subscriber.set_status(standing(state, fence))
    assert subscriber.take(10**6).count(b"event: state") == 2
    subscriber.set_status(standing("dead"))
    assert subscriber.over and subscriber.take(10**6) == b""


def test_the_last_word_goes_by_the_last_event_of_the_job_wanted_or_not() -> None:
    """R137"""
    subscriber = live(EventFilter(job=JOB, kinds=frozenset({"log"})))
    give(subscriber, 7)
    subscriber.set_status(standing("succeeded"))
    assert b"id: 7-end\n" in subscriber.end_frame()


def test_nothing_that_is_told_breaks_a_line() -> None:
    """Whatever a handler says, a frame is one event."""
    nasty = "x\\n\\ndata: {}\\n\\nevent: end\\r\\u2028"
    frame = frames.event_frame(told(1, data='{"message": "' + nasty + '"}'))
    assert frame.sse.count(b"\n") == 4 and b"\r" not in frame.sse
    assert frame.ndjson.count(b"\n") == 1
    assert b"event:" not in EventFrame("bad\nevent: end", {}).sse.split(b"data:")[0]
    assert b"event:" not in EventFrame("error", {}).sse.split(b"data:")[0]
    assert frames.keep_alive_bytes(5, SSE) == b"id: 5\n\n"
    assert frames.keep_alive_bytes(5, NDJSON) == b'{"id": "5", "kind": "keep-alive"}\n'
