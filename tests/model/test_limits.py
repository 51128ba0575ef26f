"""Limits of a queue as a value: what it accepts, refuses and stores."""

from __future__ import annotations

import json
from typing import Any

import pytest

from outlast import InvalidOption, Outlast
from outlast.model.lane import QueueLimits, checked_overrides, rate_per_second, refill_wait


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("running", -1), ("running", True), ("running", 1.5), ("running", "3"),
        ("lane_running", -2), ("lane", "customer"), ("rate", "fast"), ("rate", "5/w"),
        ("rate", "0/s"), ("rate", 0), ("rate", float("inf")), ("rate", "5/0s"),
        ("lane_rate", "-1/s"), ("burst", 0), ("burst", 5), ("weights", {"gold": 0}),
        ("weights", {"gold": 1.5}), ("weights", ["gold"]), ("weights", {"": 2}),
        ("ordered", 1), ("on_dead", "stop"), ("on_dead", "block"),
    ],
)  # fmt: skip
def test_a_bad_limit_is_refused_by_the_name_of_its_field(field: str, value: Any) -> None:
    with pytest.raises(InvalidOption, match=field):
        QueueLimits("mail", **{field: value})


def test_an_ordered_lane_runs_one_at_a_time() -> None:
    assert QueueLimits("sync", ordered=True).lane_running == 1
    with pytest.raises(InvalidOption, match="lane_running"):
        QueueLimits("sync", ordered=True, lane_running=2)


@pytest.mark.parametrize(
    ("text", "rate"),
    [("600/m", 10.0), ("5/s", 5.0), ("100/15m", 100 / 900), ("1.5 / h", 1.5 / 3600), (7, 7.0)],
)
def test_a_rate_is_starts_a_second(text: Any, rate: float) -> None:
    assert rate_per_second("rate", text) == pytest.approx(rate)


def test_limits_are_read_as_they_were_stored() -> None:
    limits = QueueLimits("mail", 50, "tenant", 3, "600/m", "100/m", 20, {"gold": 4})
    stored = json.dumps(limits.as_json())
    assert QueueLimits.from_json("mail", stored) == limits
    assert QueueLimits.from_json("mail", None) == QueueLimits("mail")
    assert QueueLimits.from_json("mail", '{"of_a_later_release": 1}') == QueueLimits("mail")


def test_a_queue_without_limits_is_not_limited() -> None:
    assert not QueueLimits("plain").limited
    assert QueueLimits("mail", lane="tenant").limited
    assert QueueLimits("mail", running=0).limited


def test_overrides_that_no_longer_fit_have_no_effect() -> None:
    ordered = QueueLimits("sync", ordered=True)
    assert ordered.with_overrides({"lane_running": 5, "running": 9}) == QueueLimits(
        "sync", running=9, ordered=True
    )


def test_how_lanes_are_made_is_not_changed_at_run_time() -> None:
    with pytest.raises(InvalidOption, match=r"ordered.*ol\.queue"):
        checked_overrides({"ordered": True})
    with pytest.raises(InvalidOption, match="no option 'runing': did you mean running"):
        checked_overrides({"runing": 3})


def test_an_unknown_limit_is_refused_with_its_nearest_spelling() -> None:
    ol = Outlast("sqlite:///never-opened.db")
    with pytest.raises(InvalidOption, match=r"no option 'runing': did you mean running.*ordered"):
        ol.queue("z", runing=3)  # type: ignore[call-arg]
    with pytest.raises(InvalidOption, match=r"no option 'colour'\. Options: burst"):
        ol.queue("z", colour="red")  # type: ignore[call-arg]
    assert not ol.declared_queues


@pytest.mark.parametrize(
    ("text", "stored", "period"),
    [("10000/d", "10000/d", 86400), ("500 / 15m", "500/15m", 900), ("24/24h", "24/d", 86400)],
)
def test_a_quota_is_jobs_in_a_period(text: str, stored: str, period: float) -> None:
    """R149."""
    limits = QueueLimits("ingest", quota=text)
    assert limits.quota == stored and limits.has_quota and not limits.limited
    assert limits.row()["quota_period"] == period
    assert QueueLimits("ingest", lane_quota=text).limited, "its jobs have lanes"


@pytest.mark.parametrize(
    ("rates", "burst", "wait"),
    [
        ((5.0, None), None, 0.8),
        ((1.0, None), None, 0.1),
        ((None, 10.0), 1, 0.01),
        ((2.0, 1.0), 3, 1.0),
        ((None, None), None, None),
    ],
)
def test_a_bucket_is_looked_at_before_it_overflows(
    rates: tuple[float | None, ...], burst: float | None, wait: float | None
) -> None:
    """R148: what a full bucket spills is lost to the rate."""
    assert refill_wait(rates, burst) == (wait if wait is None else pytest.approx(wait))
