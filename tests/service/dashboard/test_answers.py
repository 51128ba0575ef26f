"""The page of a job that waits: what for, since when, and a form for those who may answer."""

from __future__ import annotations

import pytest

from outlast import Context, Outlast
from outlast.model.wait import Wait, WaitKind
from outlast.ops.finish import finish
from outlast.ops.wait_report import signals
from tests.service.serving import Served
from tests.store.jobs import ending, take

pytestmark = pytest.mark.kinds("sqlite", "postgres")


def parked(ol: Outlast, wait: Wait) -> str:
    @ol.task(name="asks", queue="default")
    def asks(ctx: Context) -> None: ...

    job = asks.enqueue()
    (claim,) = take(ol.store.run)
    ol.store.run(finish, [ending(claim, "waited", wait=wait)])
    return job.id


def test_a_job_that_waits_is_answered_on_its_page(served: Served) -> None:
    """R247: a form of the type that the wait had, with the scope `signal`; whoever is second is
    told, and nothing is sent; the wait is a gap in the timeline."""
    forms = '{"approval": {"type": "boolean"}}'
    id = parked(served.ol, Wait("approval", WaitKind.SIGNAL, ("approval",), forms=forms))
    reader, answerer = served.token("read"), served.token("read", "signal", name="boss")
    seen = served.get(f"/jobs/{id}", reader).text
    assert "Waiting for approval since" in seen and "Anyone with a token" in seen
    assert "waited" in seen and "No</button>" not in seen
    page = served.get(f"/jobs/{id}", answerer).text
    path = f"/jobs/{id}/signals/approval"
    assert f'action="{path}"' in page and "No</button>" in page
    assert served.post(path, reader, data={"choice": "0"}).status_code == 403
    assert served.post(path, answerer, data={"choice": "7"}).status_code == 303
    assert served.ol.store.run(signals, id) == []
    for choice in ("1", "0"):
        assert served.post(path, answerer, data={"choice": choice}).status_code == 303
    [one] = served.ol.store.run(signals, id)
    assert one.sent_by is not None and one.sent_by.startswith("token boss (")
    assert served.ol.job(id).state == "ready"


def test_lists_say_what_jobs_wait_for(served: Served) -> None:
    """R246: names, since when and until when, in the API."""
    id = parked(served.ol, Wait("go", WaitKind.SIGNAL, ("a", "b"), 3600.0))
    token = served.token("read")
    one = served.get(f"/api/v1/jobs/{id}", token).json()["waiting"]
    assert (one["name"], one["kind"], one["for"]) == ("go", "signal", ["a", "b"])
    assert one["since"] < one["until"]
    (line,) = served.get("/api/v1/jobs", token).json()["jobs"]
    assert line["waiting"] == one
