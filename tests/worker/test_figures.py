"""What a worker counts of its own doing: by the batch, and exactly."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.model.job import Claim
from outlast.worker.figures import EDGES, NAMES, Figures, Histogram


@given(st.lists(st.floats(0, 5000), min_size=1, max_size=50))
def test_spans_are_counted_by_the_batch_as_one_by_one(spans: list[float]) -> None:
    """R194: whether all of them are of one class or not."""
    together, alone = Histogram(), Histogram()
    together.add(spans)
    for span in spans:
        alone.add([span])
    assert together.counts == alone.counts and sum(together.counts) == len(spans)
    assert together.total == pytest.approx(alone.total)
    assert all(
        count == sum(low < span <= high for span in spans)
        for count, low, high in zip(
            together.counts, (-1.0, *EDGES), (*EDGES, math.inf), strict=True
        )
    )


def test_what_ran_is_counted_once_and_past_some_names_together() -> None:
    """R194: bounded labels, whoever makes up names."""
    figures = Figures()
    for n in range(NAMES + 50):
        figures.ran[f"task-{n}"].append(0.001)
        figures.tally()
    figures.tally()
    assert len(figures.runs) <= NAMES + 1 and not figures.ran
    assert sum(sum(one.counts) for one in figures.runs.values()) == NAMES + 50


def test_a_row_that_holds_anything_is_counted_too() -> None:
    """A claim whose moments are none."""
    figures, broken = Figures(), Claim(*[None] * len(Claim._fields))  # type: ignore[arg-type]
    figures.claimed([broken, broken])
    assert figures.waits[broken.queue].counts[-1] == 2
