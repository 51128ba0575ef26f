"""The page of outboxes and sources."""

from __future__ import annotations

import pytest

from outlast import Outlast
from outlast.ops.bridges import OUTBOX, SOURCE, BridgeReport, report_bridges
from tests.bridges.own_bridges import ListSink
from tests.service.dashboard.looking import Browser, looking
from tests.service.serving import Served
from tests.support import eventually

MAIL = BridgeReport(
    SOURCE, "mail", "NATS nats://broker, subject mail", "sync", ("inbox",), received=12, stored=9,
    undecodable=1, lag=4321, error="ConnectionError: <refused>",
)  # fmt: skip


def announce(ol: Outlast) -> list[str]:
    """An outbox with messages of both queues, and a source; the queues of the outbox."""
    orders = ol.outbox("orders", ListSink())
    ol.enqueue(orders.message(1), orders.message(2), orders.message(3, key="k"))
    shown = BridgeReport(OUTBOX, "orders", "a list", "orders", orders.queues)
    ol.store.run(report_bridges, [shown, MAIL])
    return list(orders.queues)


def test_the_page_shows_what_waits_and_what_fails(served: Served, browser: Browser) -> None:
    """R124, R125: state, waiting and dead messages, lag, and the last error."""
    assert "No outboxes or sources" in browser.go("/bridges").text
    announce(served.ol)
    eventually(lambda: "orders working 3 0 0" in browser.go("/bridges").text)  # counts are cached
    page = browser.go("/bridges")
    assert page.links["Brokers"] == "/bridges"
    assert "mail makes jobs of sync failing ConnectionError: <refused> 4,321 12 9 1" in page.text


def test_an_outbox_is_paused_and_resumed_with_all_its_queues(
    served: Served, browser: Browser
) -> None:
    """R058: messages with a key wait in a queue of their own."""
    queues = announce(served.ol)
    assert len(queues) == 2
    pause = browser.go("/bridges/pause?kind=outbox&name=orders")
    done = browser.send(pause.form_to("/bridges/pause"))
    assert "The outbox orders is paused." in done.text and "orders paused" in done.text
    assert {queue.name for queue in served.ol.queues() if queue.paused} == set(queues)
    resume = browser.go("/bridges/resume?kind=outbox&name=orders")
    assert "is resumed" in browser.send(resume.form_to("/bridges/resume")).text
    assert not [queue for queue in served.ol.queues() if queue.paused]


@pytest.mark.kinds("sqlite")
def test_a_token_of_some_queues_sees_no_other_bridges(served: Served) -> None:
    """R145."""
    announce(served.ol)
    for limits, seen in (({"queues": ["inbox"]}, True), ({"queues": ["orders"]}, False)):
        with looking(served) as browser:
            browser.log_in(served.token("admin", **limits))
            page = browser.go("/bridges")
            assert ("makes jobs of sync" in page.text) is seen and "a list" not in page.text
            refused = served.get(
                "/bridges/pause", served.token("admin", **limits),
                params={"kind": "outbox", "name": "orders"},
            )  # fmt: skip
            assert refused.status_code == 403
    assert served.get("/bridges", served.token("admin", tenant="acme")).status_code == 403
    unknown = served.get(
        "/bridges/pause", served.token("admin"), params={"kind": "source", "name": "orders"}
    )
    assert unknown.status_code == 404
