"""Which points are tried, and in which order."""

from __future__ import annotations

import random
from itertools import islice

from outlast.verify.faults.points import (
    FaultPoint,
    PointDeck,
    batches,
    points_of,
    points_outside_transactions,
    rounds,
)
from outlast.verify.scenarios import SCENARIOS

WORDS = ["BEGIN IMMEDIATE", "UPDATE job", "COMMIT", "SELECT 1"]


def test_a_path_has_a_point_before_and_after_each_exchange() -> None:
    """R205"""
    assert len(set(points_of("bulk", WORDS))) == 8


def test_where_no_transaction_is_open_is_told_by_what_was_said() -> None:
    assert points_outside_transactions("bulk", WORDS) == [
        FaultPoint("bulk", 1, False),
        FaultPoint("bulk", 3, True),
        FaultPoint("bulk", 4, False),
        FaultPoint("bulk", 4, True),
    ]


def test_every_round_tries_every_point() -> None:
    points = points_of("bulk", WORDS)
    dealing = rounds([PointDeck(points, None, random.Random(1))], random.Random(1))
    first, second = islice(dealing, 2)
    assert sorted(map(str, first)) == sorted(map(str, second)) == sorted(map(str, points))
    assert first != second


def test_a_long_path_is_tried_over_several_rounds_until_all_its_points_were_tried() -> None:
    points = points_of("worker", ["x"] * 50)
    dealing = rounds([PointDeck(points, 10, random.Random(1))], random.Random(1))
    tried = [point for dealt in islice(dealing, 10) for point in dealt]
    assert len(tried) == 100
    assert set(tried) == set(points)


def test_a_short_run_is_a_sample_of_all_paths() -> None:
    decks = [PointDeck(points_of(name, ["x"] * n), None, random.Random(1))
             for n, name in enumerate(SCENARIOS, 1)]  # fmt: skip
    dealt = next(rounds(decks, random.Random(1)))
    assert {point.scenario for point in dealt[: len(SCENARIOS)]} == set(SCENARIOS)


def test_paths_that_are_kept_apart_do_not_use_up_a_short_run() -> None:
    points = [FaultPoint(name, n, False) for n in (1, 2, 3) for name in SCENARIOS]
    dealt = [point for batch in batches(points, 10) for point in batch]
    assert {point.scenario for point in dealt[: len(SCENARIOS)]} == set(SCENARIOS)
    assert sorted(map(str, dealt)) == sorted(map(str, points))


def test_the_same_seed_gives_the_same_order() -> None:
    def order(seed: int) -> list[FaultPoint]:
        luck = random.Random(seed)
        return next(rounds([PointDeck(points_of("bulk", ["x"] * 20), None, luck)], luck))

    assert order(7) == order(7) != order(8)


def test_paths_that_remove_what_others_leave_are_kept_apart() -> None:
    points = [FaultPoint(name, 1, False) for name in SCENARIOS]
    found = list(batches(points, 1000))
    shared = [batch for batch in found if not any(SCENARIOS[p.scenario].exclusive for p in batch)]
    assert [{SCENARIOS[p.scenario].removes_jobs for p in batch} for batch in shared] == [
        {True},
        {False},
    ]
    assert [len(batch) for batch in found if batch not in shared] == [
        1 for path in SCENARIOS.values() if path.exclusive
    ]
    assert sorted(map(str, points)) == sorted(str(p) for batch in found for p in batch)
