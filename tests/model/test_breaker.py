"""What counts as an outage, and when it is probed."""

from __future__ import annotations

import errno
import socket
from typing import Any

import pytest

from outlast import Breaker, DependencyDown, InvalidOption
from outlast.model.breaker import Circuit, FailureStreak, OpenBreaker, Outage, outage_of


def raised(error: Exception, by: Exception | None = None, *, silently: bool = False) -> Exception:
    """An error that was raised while another was handled."""
    try:
        try:
            if by is not None:
                raise by
        except Exception as first:
            if silently:
                raise error from None
            raise error from (first if isinstance(error, LookupError) else error.__cause__)
        raise error
    except Exception as last:
        return last


@pytest.mark.parametrize(
    "error",
    [
        ConnectionRefusedError("no"),
        TimeoutError("no"),
        socket.gaierror(socket.EAI_NONAME, "no such name"),
        OSError(errno.EHOSTUNREACH, "no route"),
        raised(LookupError("by a client"), ConnectionResetError("by the socket")),
    ],
)
def test_lost_connections_are_suspected(error: Exception) -> None:
    """R054"""
    assert outage_of(error, Breaker()) is Outage.SUSPECTED
    assert outage_of(error, None) is None


@pytest.mark.parametrize(
    "error",
    [
        ValueError("no"),
        FileNotFoundError("no"),
        OSError(errno.ENOSPC, "full"),
        raised(LookupError("its own"), ConnectionResetError("handled"), silently=True),
    ],
)
def test_other_errors_are_their_jobs_own(error: Exception) -> None:
    """R055"""
    assert outage_of(error, Breaker()) is None


def test_what_a_handler_knows_is_certain() -> None:
    """R054: also where the task has no breaker. Other kinds are suspected if they are named."""

    class SinkDown(DependencyDown): ...

    assert outage_of(SinkDown("away"), Breaker()) is Outage.CERTAIN
    assert outage_of(SinkDown("away"), None) is Outage.CERTAIN
    assert outage_of(KeyError("x"), Breaker(kinds=(KeyError,))) is Outage.SUSPECTED
    assert outage_of(ConnectionError("x"), Breaker(kinds=(KeyError,))) is None


def test_a_job_that_fails_again_and_again_counts_once() -> None:
    """R120: N failures in a row are those of N jobs."""
    streak = FailureStreak()
    assert [streak.failed(job) for job in "aabacc"] == [1, 1, 2, 2, 3, 3]


def test_probes_wait_longer_each_time_and_not_for_ever() -> None:
    """R223: 1 s to 30 s, up to a fifth sooner."""
    waits = [Breaker().wait(probes, jitter=0.0) for probes in (0, 1, 2, 3, 4, 5, 6, 10**9)]
    assert waits == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]
    assert Breaker().wait(0, jitter=0.999) == pytest.approx(0.8, abs=0.01)


def test_only_an_attempt_begun_since_tells_of_a_return() -> None:
    """R223: a success that began before the outage says nothing about it."""
    opened = OpenBreaker(Circuit("q", "t"), "id", opened_at=100.0)
    assert opened.precedes(100.1) and not opened.precedes(99.9)
    assert not OpenBreaker(Circuit("q", "t"), "id").precedes(1e12), "not written yet"


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"failures": 0}, "breaker.failures"),
        ({"failures": True}, "breaker.failures"),
        ({"kinds": [OSError]}, "breaker.kinds"),
        ({"kinds": ("OSError",)}, "breaker.kinds"),
        ({"kinds": ()}, "breaker.kinds.*at least one"),
        ({"probe_first": 0}, "breaker.probe_first"),
        ({"probe_first": 1e9}, "breaker.probe_first.*at most 86400"),
        ({"probe_cap": 1e9}, "breaker.probe_cap.*to 86400"),
        ({"probe_first": float("nan")}, "breaker.probe_first"),
        ({"probe_cap": 0.5}, "breaker.probe_cap"),
    ],
)
def test_settings_are_refused_by_name(given: dict[str, Any], named: str) -> None:
    """R202"""
    with pytest.raises(InvalidOption, match=named):
        Breaker(**given)


def test_it_is_shown_by_what_is_not_as_by_default() -> None:
    assert repr(Breaker()) == "Breaker()"
    shown = repr(Breaker(failures=3, kinds=(OSError,)))
    assert shown == "Breaker(failures=3, kinds=(OSError,))"
