"""The service tells its metrics to those who may know, and its health to anybody."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from outlast import Outlast
from outlast.metrics import CATALOGUE, ServiceTarget
from outlast.model.settings import ServiceSettings
from tests.metrics.scraping import Scraped
from tests.metrics.test_http_server import check
from tests.service.serving import Served, serving
from tests.support import Postgres, eventually


@pytest.mark.kinds("sqlite")
def test_metrics_are_for_those_who_may_read_everything(served: Served) -> None:
    """R194: what is measured is all tenants'."""
    reader, other = served.token("read"), served.token("read", tenant="a")
    said = served.get("/metrics", reader)
    assert Scraped(said.text).names == {
        metric.name for metric in CATALOGUE.values() if metric.origin in ServiceTarget.origins
    }
    assert said.headers["content-type"].startswith("text/plain; version=")
    check(said.text)
    assert served.get("/metrics").status_code == 401
    assert served.get("/metrics", other).status_code == 403
    assert served.get("/metrics", served.token("enqueue", "work")).status_code == 403
    assert served.get("/metrics", served.token("read", queues=["mail"])).status_code == 403
    asked = {"accept": "application/openmetrics-text; version=1.0.0"}
    openmetrics = served.get("/metrics", reader, headers=asked)
    assert openmetrics.text.endswith("# EOF\n")


@pytest.mark.kinds("sqlite")
def test_metrics_can_be_opened(ol: Outlast) -> None:
    with serving(ol, ServiceSettings(open_metrics=True)) as served:
        served.token("read")
        assert Scraped(served.get("/metrics").text)("outlast_info", role="service") == 1


@pytest.mark.kinds("sqlite")
def test_parts_of_the_service_are_told_with_the_rest(served: Served) -> None:
    service = served.app.service
    service.dispatcher.counts["offered"] = 6
    service.broadcaster.counts["cut"] = 2
    said = Scraped(served.get("/metrics").text)
    assert said("outlast_offers_total") == 6
    assert said("outlast_event_subscribers_cut_total") == 2
    assert said("outlast_event_subscribers") == said("outlast_dequeue_streams") == 0
    with pytest.raises(KeyError):
        service.gauges.register("outlast_made_up", int)
    with pytest.raises(ValueError, match="labels"):
        service.gauges.register("outlast_jobs", int)


def test_health_is_for_anybody_and_a_database_that_is_away_is_no_death(
    own_postgres: Postgres, tmp_path: Path
) -> None:
    """R188"""
    with Outlast(own_postgres.url()) as ol, serving(ol) as served:
        served.token("admin")
        assert (served.get("/livez").text, served.get("/readyz").text) == ("ok\n", "ok\n")
        own_postgres.stop()
        said = eventually(lambda: (r := served.get("/readyz")).status_code == 503 and r, 20)
        assert said.text.startswith("the database does not answer")
        assert str(own_postgres.port) not in said.text
        assert served.get("/livez").status_code == 200
        own_postgres.start()
        eventually(lambda: served.get("/readyz").status_code == 200, 30)


@pytest.mark.kinds("sqlite")
def test_many_scrapers_cost_one_query(served: Served) -> None:
    snapshot = served.app.service.metrics_routes._snapshot
    threads = [threading.Thread(target=served.get, args=("/metrics",)) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert snapshot.failures == 0
    assert snapshot.measured is not None


@pytest.mark.kinds("sqlite")
def test_a_request_hands_its_trace_on(served: Served) -> None:
    """R197: from whoever calls the API, by the header that W3C has for it."""
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    for said, kept in ((trace, trace), ("nonsense", None), (None, None)):
        headers = {} if said is None else {"traceparent": said}
        made = served.post("/api/v1/jobs", json={"task": "t"}, headers=headers)
        assert made.json()["trace"] == kept
