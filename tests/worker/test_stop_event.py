"""What a handler has seen of `ctx.cancelled`, if several of its threads look."""

from __future__ import annotations

import threading

from outlast.worker.stop_event import StopEvent


class SetAfterTimeout(threading.Event):
    """Set, and seen by another thread, just after a wait has timed out."""

    def wait(self, timeout: float | None = None) -> bool:
        found = super().wait(timeout)
        self.set()
        other = threading.Thread(target=self.is_set)
        other.start()
        other.join()
        return found


class SharedEvent(StopEvent, SetAfterTimeout): ...


def test_a_wait_that_timed_out_does_not_undo_what_another_thread_has_seen() -> None:
    event = SharedEvent()
    assert not event.wait(0.001)
    assert event.seen
