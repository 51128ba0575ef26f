"""A tenant sees its own, and nothing that would tell it of others."""

from __future__ import annotations

import time

import pytest

from outlast.ops import statistics
from outlast.ops import workers as worker_ops
from tests.service.dashboard.looking import looking
from tests.service.serving import Served
from tests.store.jobs import end, put, take


@pytest.mark.kinds("sqlite")
def test_a_tenant_sees_its_own_jobs_queues_and_figures(served: Served) -> None:
    run = served.ol.store.run
    run(
        worker_ops.register,
        served.ol.worker().registration_row() | {"id": "a-worker", "host": "secret-host"},
    )
    for tenant, number in (("acme", 2), ("other", 5)):
        put(run, number, queue=f"of-{tenant}", tenant=tenant, task=f"task-{tenant}")
        for claim in take(run, 1, queue=f"of-{tenant}", worker="a-worker"):
            end(run, claim)
    now = int(time.time()) // statistics.SPAN_S * statistics.SPAN_S
    run(statistics.count, now, run(statistics.depths))
    with looking(served) as browser:
        browser.log_in(served.token("read", tenant="acme"))
        for path in ("/", "/queues"):
            text = browser.go(path).text
            assert "of-acme" in text, path
            assert "other" not in text.replace("all others", ""), path
            assert "secret-host" not in text and "a-worker" not in text
        assert browser.go("/workers", 403) and browser.go("/recovery", 403)
        assert "Workers" not in browser.go("/").links
    with looking(served) as browser:
        browser.log_in(served.token("read", queues=["of-other"]))
        for path in ("/", "/queues", "/workers", "/recovery"):
            assert "of-acme" not in browser.go(path).text, path
