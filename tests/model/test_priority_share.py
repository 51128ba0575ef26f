"""The share of claims that goes to the longest due job."""

from __future__ import annotations

from itertools import pairwise

import pytest

from outlast.model.priority_share import takes_longest_due


def test_every_ten_claims_in_a_row_have_one_for_the_longest_due() -> None:
    """R243: a tenth at the least, and hardly more."""
    chosen = [n for n in range(100_000) if takes_longest_due(n)]
    assert chosen[0] == 9
    assert {after - before for before, after in pairwise(chosen)} == {9, 10}
    assert 0.1 <= len(chosen) / 100_000 < 0.105


@pytest.mark.parametrize("lanes", [2, 3, 9, 10, 20, 64])
def test_lanes_that_take_turns_all_have_their_share(lanes: int) -> None:
    """R243: with ten lanes and one job a claim, each tenth claim would be the same lane's."""
    turns = 1000 * lanes
    shares = [0] * lanes
    for n in range(turns):
        shares[n % lanes] += takes_longest_due(n)
    assert min(shares) > 90 and max(shares) < 120
