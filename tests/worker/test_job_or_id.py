"""Verbs take a job or its id, and a time that is up already."""

from __future__ import annotations

import time
from typing import Any

import pytest

from outlast import Outlast, ResultTimeout


def test_a_job_stands_for_its_id(ol: Outlast) -> None:
    """R117: what `enqueue` returned can be passed on."""

    @ol.task
    def work() -> None: ...

    job: Any = work.using(delay=60).enqueue()
    assert ol.cancel(job).state == "cancelled"
    assert ol.retry(job).state == "ready"
    assert ol.job(job).id == job.id
    assert "ready" in ol.explain(job) or "worker" in ol.explain(job)
    assert ol.history(job)[1]


def test_a_time_that_is_up_is_no_outage(ol: Outlast) -> None:
    """R162: what is left of a budget may be below zero."""

    @ol.task
    def work() -> None: ...

    job = work.using(delay=60).enqueue()
    began = time.monotonic()
    with pytest.raises(ResultTimeout, match="it is scheduled"):
        ol.result(job.id, timeout=-1)
    assert time.monotonic() - began < 5.0
