"""Medians, spread and ratios, from samples that somebody made up."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.cells.drain import all_at_work
from benchmarks.figures import Row, Spread, ratio, rows


def contender(kind: str, store: str, durable: bool = True) -> dict[str, Any]:
    return {"kind": kind, "store": store, "durable": durable, "durability": ""}


def results(figure: dict[str, Any], samples: dict[str, list[dict[str, float] | None]]) -> Any:
    return {
        "cells": {"drain": {"figures": [figure], "samples": samples, "failed": {}}},
        "contenders": {
            "outlast/postgres": contender("outlast", "postgres"),
            "bare/postgres": contender("bare", "postgres"),
            "slow/postgres": contender("peer", "postgres"),
            "fast/redis": contender("peer", "redis"),
            "careless/postgres": contender("peer", "postgres", durable=False),
        },
    }


def rate(*values: float) -> list[dict[str, float] | None]:
    return [{"rate": value} for value in values]


RATE = {"name": "rate", "unit": "jobs/s", "more": True}


def by_contender(found: Any) -> dict[str, Row]:
    return {row.contender: row for row in rows(found)}


def test_the_median_stands_between_the_least_and_the_most() -> None:
    assert Spread.of([30.0, 10.0, 20.0]) == Spread(20.0, 10.0, 30.0, 3)
    assert Spread.of([]) is None


def test_ratios_are_taken_round_by_round() -> None:
    """A machine that was slow in one round was slow for both: the ratio of the medians would say
    2.0 here, although it was half as fast in every round but one."""
    ours, theirs = {0: 100.0, 1: 40.0, 2: 10.0}, {0: 200.0, 1: 20.0, 2: 20.0}
    assert ratio(ours, theirs) == Spread(0.5, 0.5, 2.0, 3)


def test_a_round_that_failed_is_compared_with_nothing() -> None:
    assert ratio({0: 10.0, 2: 30.0}, {1: 5.0, 2: 10.0}) == Spread(3.0, 3.0, 3.0, 1)
    assert ratio({0: 10.0}, {1: 5.0}) is None
    assert ratio({0: 10.0}, None) is None


def test_outlast_is_compared_with_the_bare_database_and_with_the_best_of_the_others() -> None:
    found = by_contender(
        results(
            RATE,
            {
                "outlast/postgres": rate(60, 60, 60),
                "bare/postgres": rate(100, 120, 80),
                "slow/postgres": rate(10, 10, 10),
                "fast/redis": rate(20, 20, 20),
                "careless/postgres": rate(30, 30, 30),
            },
        )
    )
    ours = found["outlast/postgres"]
    assert ours.value.median == 60
    assert ours.of_bare is not None and ours.of_bare.median == 0.6
    assert (ours.best_durable, ours.best_on_store) == ("fast/redis", "careless/postgres")
    assert ours.of_durable is not None and ours.of_durable.median == 3
    assert ours.of_store is not None and ours.of_store.median == 2
    slow = found["slow/postgres"]
    assert slow.of_bare is not None and slow.of_bare.median == 0.1
    assert slow.of_durable is None
    assert found["fast/redis"].of_bare is None  # there is no bare one on Redis
    assert found["bare/postgres"].of_bare is None


def test_where_less_is_better_the_best_has_the_least() -> None:
    figure = {"name": "p50", "unit": "ms", "more": False}
    samples: dict[str, Any] = {
        "outlast/postgres": [{"p50": 3.0}],
        "slow/postgres": [{"p50": 9.0}],
        "fast/redis": [{"p50": 2.0}],
    }
    ours = by_contender(results(figure, samples))["outlast/postgres"]
    assert ours.best_durable == "fast/redis"
    assert ours.of_durable is not None and ours.of_durable.median == 1.5


def test_who_failed_in_a_round_is_told_by_the_others() -> None:
    samples = {"outlast/postgres": [*rate(50), None, *rate(70)], "slow/postgres": [None]}
    found = by_contender(results(RATE, samples))
    assert found["outlast/postgres"].value == Spread(60.0, 50.0, 70.0, 2)
    assert "slow/postgres" not in found


def worker(*marks: float, count: int, last: float) -> dict[str, Any]:
    return {"marks": list(marks), "count": count, "last": last}


def test_several_workers_count_from_when_all_are_at_work() -> None:
    """One began at 1.0 and had run 100 + half of the next 100 when the other did."""
    early, late = worker(1.0, 2.0, 3.0, count=300, last=4.0), worker(2.5, 3.5, count=200, last=4.5)
    assert all_at_work([early, late]) == (2.5, pytest.approx(150))
    assert all_at_work([early]) == (1.0, 0.0)


def test_after_the_last_mark_it_goes_on_evenly_to_the_last_job() -> None:
    early, late = worker(1.0, count=41, last=5.0), worker(2.0, count=100, last=6.0)
    began_at, before = all_at_work([early, late])
    assert (began_at, before) == (2.0, pytest.approx(41 / 4))


def test_a_worker_that_came_too_late_does_not_move_the_beginning() -> None:
    early, late = worker(1.0, 2.0, 3.0, count=300, last=4.0), worker(3.9, count=10, last=4.0)
    assert all_at_work([early, late]) == (1.0, 0.0)
    assert all_at_work([early, worker(count=0, last=0.0)]) == (1.0, 0.0)
