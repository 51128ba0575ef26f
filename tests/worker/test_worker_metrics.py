"""What a worker counts of its own doing: by the batch, and exactly."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.model.claim import Claim
from outlast.worker.worker_metrics import BUCKET_EDGES_S, MAX_NAMES, DurationBuckets, WorkerMetrics
from tests.support.properties import at_any_speed


@at_any_speed
@given(st.lists(st.floats(0, 5000), min_size=1, max_size=50))
def test_spans_are_counted_by_the_batch_as_one_by_one(spans: list[float]) -> None:
    """R194: whether all of them are of one class or not."""
    together, alone = DurationBuckets(), DurationBuckets()
    together.add(spans)
    for span in spans:
        alone.add([span])
    assert together.counts == alone.counts and sum(together.counts) == len(spans)
    assert together.total == pytest.approx(alone.total)
    assert all(
        count == sum(low < span <= high for span in spans)
        for count, low, high in zip(
            together.counts, (-1.0, *BUCKET_EDGES_S), (*BUCKET_EDGES_S, math.inf), strict=True
        )
    )


def test_what_ran_is_counted_once_and_past_some_names_together() -> None:
    """R194: bounded labels, whoever makes up names."""
    figures = WorkerMetrics()
    for n in range(MAX_NAMES + 50):
        figures.durations[f"task-{n}"].append(0.001)
        figures.count_durations()
    figures.count_durations()
    assert len(figures.runs) <= MAX_NAMES + 1 and not figures.durations
    assert sum(sum(one.counts) for one in figures.runs.values()) == MAX_NAMES + 50


def test_a_row_that_holds_anything_is_counted_too() -> None:
    """A claim whose moments are none."""
    figures, broken = WorkerMetrics(), Claim(*[None] * len(Claim._fields))  # type: ignore[arg-type]
    figures.add_claims([broken, broken])
    assert figures.waits[broken.queue].counts[-1] == 2
