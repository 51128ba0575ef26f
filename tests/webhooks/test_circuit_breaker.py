"""Who does not answer is asked by one at a time."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from outlast.webhooks.circuit_breaker import CircuitOpen, DestinationBreaker

LONG, NONE = 600.0, 0.0  # seconds for which a silence is remembered


def test_as_many_as_like_ask_one_that_answers() -> None:
    silence = DestinationBreaker()
    with ExitStack() as stack:
        for _ in range(10):
            stack.enter_context(silence.guard(LONG))


def fall_silent(silence: DestinationBreaker, seconds: float) -> None:
    with pytest.raises(TimeoutError), silence.guard(seconds):
        raise TimeoutError


def test_one_at_a_time_asks_one_that_was_silent() -> None:
    """R127: until it answers, whatever it says."""
    silence = DestinationBreaker()
    fall_silent(silence, LONG)
    for _ in range(3):
        with pytest.raises(ConnectionError), silence.guard(LONG):
            with pytest.raises(CircuitOpen), silence.guard(LONG):
                raise AssertionError("two at a time")
            raise ConnectionError("no answer either")
    with silence.guard(LONG):
        pass
    with silence.guard(LONG), silence.guard(LONG):
        pass


def test_a_silence_is_not_remembered_for_longer_than_a_timeout() -> None:
    silence = DestinationBreaker()
    fall_silent(silence, NONE)
    with silence.guard(LONG), silence.guard(LONG):
        pass


def test_those_who_asked_together_may_all_wait_for_their_answers() -> None:
    silence = DestinationBreaker()
    with silence.guard(LONG):
        fall_silent(silence, LONG)
        with pytest.raises(CircuitOpen), silence.guard(LONG):
            raise AssertionError("a second one")
    with silence.guard(LONG), silence.guard(LONG):
        pass  # one of them was answered
