"""Which points are tried, and in which order."""

from __future__ import annotations

import random
from itertools import islice

from outlast.verify.paths import PATHS
from outlast.verify.points import Deck, Point, batches, points_of, rounds, unlocked

WORDS = ["BEGIN IMMEDIATE", "UPDATE job", "COMMIT", "SELECT 1"]


def test_a_path_has_a_point_before_and_after_each_exchange() -> None:
    """R205"""
    assert len(set(points_of("bulk", WORDS))) == 8


def test_where_no_transaction_is_open_is_told_by_what_was_said() -> None:
    assert unlocked("bulk", WORDS) == [
        Point("bulk", 1, False),
        Point("bulk", 3, True),
        Point("bulk", 4, False),
        Point("bulk", 4, True),
    ]


def test_every_round_tries_every_point() -> None:
    points = points_of("bulk", WORDS)
    dealing = rounds([Deck(points, None, random.Random(1))], random.Random(1))
    first, second = islice(dealing, 2)
    assert sorted(map(str, first)) == sorted(map(str, second)) == sorted(map(str, points))
    assert first != second


def test_a_long_path_is_tried_over_several_rounds_until_all_its_points_were_tried() -> None:
    points = points_of("worker", ["x"] * 50)
    dealing = rounds([Deck(points, 10, random.Random(1))], random.Random(1))
    tried = [point for dealt in islice(dealing, 10) for point in dealt]
    assert len(tried) == 100
    assert set(tried) == set(points)


def test_a_short_run_is_a_sample_of_all_paths() -> None:
    decks = [Deck(points_of(name, ["x"] * n), None, random.Random(1))
             for n, name in enumerate(PATHS, 1)]  # fmt: skip
    dealt = next(rounds(decks, random.Random(1)))
    assert {point.path for point in dealt[: len(PATHS)]} == set(PATHS)


def test_the_same_seed_gives_the_same_order() -> None:
    def order(seed: int) -> list[Point]:
        luck = random.Random(seed)
        return next(rounds([Deck(points_of("bulk", ["x"] * 20), None, luck)], luck))

    assert order(7) == order(7) != order(8)


def test_paths_that_remove_what_others_leave_are_kept_apart() -> None:
    points = [Point(name, 1, False) for name in PATHS]
    found = list(batches(points, 1000))
    shared = [batch for batch in found if not any(PATHS[p.path].alone for p in batch)]
    assert [{PATHS[p.path].apart for p in batch} for batch in shared] == [{True}, {False}]
    assert [len(batch) for batch in found if batch not in shared] == [
        1 for path in PATHS.values() if path.alone
    ]
    assert sorted(map(str, points)) == sorted(str(p) for batch in found for p in batch)
