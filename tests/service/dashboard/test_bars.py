"""Flows and queues at a glance: a bar in the colours of the states, and queues without a worker."""

from __future__ import annotations

import re

import pytest

from outlast import Permanent, Retry, group
from outlast.testing import drain
from tests.service.serving import Served

pytestmark = pytest.mark.kinds("sqlite")


def test_the_bar_of_a_flow_has_a_part_for_each_state(served: Served) -> None:
    ol = served.ol

    @ol.task(retry=Retry(max_attempts=1))
    def part(n: int) -> None:
        if n == 0:
            raise Permanent("no")

    @ol.task
    def later() -> None: ...

    jobs = ol.enqueue(group(*(part.job(n) for n in range(4)), later.using(delay=3600).job()))
    drain(ol)
    page = served.get(f"/flows/{jobs[0].flow}").text
    bar = re.findall(r'class="bar-(\w+)" d="M(\d+) 0h(\d+)v1', page)
    assert bar == [("succeeded", "0", "3"), ("dead", "3", "1"), ("scheduled", "4", "1")]
    assert 'aria-label="Jobs by state: ' in page


def test_a_queue_without_a_worker_says_so(served: Served) -> None:
    ol = served.ol

    @ol.task
    def work() -> None: ...

    work.enqueue()
    page = served.get("/queues").text
    assert "no worker</span>" in page
