"""The last sentence of a campaign counts in words of the field."""

from __future__ import annotations

from outlast.cli.verify_run import _summary
from outlast.verify.results import CampaignResults


def test_counts_are_singular_or_plural_and_without_underscores() -> None:
    columns = ("steps", "locks", "lost_owners", "crashes")
    figures = CampaignResults("clock", "sqlite", 7, columns, "steps")
    for what, number in (("steps", 2), ("locks", 1), ("crashes", 1)):
        for _ in range(number):
            figures.counts_of("x").add(what)
    assert ": 2 steps, 1 lock, 0 lost owners, 1 crash, " in _summary(figures)
