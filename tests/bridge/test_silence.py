"""Who does not answer is asked by one at a time."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from outlast.bridge.silence import Silence, Silent

LONG, NONE = 600.0, 0.0  # seconds for which a silence is remembered


def test_as_many_as_like_ask_one_that_answers() -> None:
    silence = Silence()
    with ExitStack() as stack:
        for _ in range(10):
            stack.enter_context(silence.broken(LONG))


def fall_silent(silence: Silence, seconds: float) -> None:
    with pytest.raises(TimeoutError), silence.broken(seconds):
        raise TimeoutError


def test_one_at_a_time_asks_one_that_was_silent() -> None:
    """R127: until it answers, whatever it says."""
    silence = Silence()
    fall_silent(silence, LONG)
    for _ in range(3):
        with pytest.raises(ConnectionError), silence.broken(LONG):
            with pytest.raises(Silent), silence.broken(LONG):
                raise AssertionError("two at a time")
            raise ConnectionError("no answer either")
    with silence.broken(LONG):
        pass
    with silence.broken(LONG), silence.broken(LONG):
        pass


def test_a_silence_is_not_remembered_for_longer_than_a_timeout() -> None:
    silence = Silence()
    fall_silent(silence, NONE)
    with silence.broken(LONG), silence.broken(LONG):
        pass


def test_those_who_asked_together_may_all_wait_for_their_answers() -> None:
    silence = Silence()
    with silence.broken(LONG):
        fall_silent(silence, LONG)
        with pytest.raises(Silent), silence.broken(LONG):
            raise AssertionError("a second one")
    with silence.broken(LONG), silence.broken(LONG):
        pass  # one of them was answered
