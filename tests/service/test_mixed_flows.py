"""A flow whose jobs are several tenants': each tenant's token learns of its own alone."""

from __future__ import annotations

from typing import Any

import pytest

from outlast import Outlast, chain
from tests.service.serving import Served

PATHS = ("", "/explain", "/history", "/result")


@pytest.fixture
def tasks(ol: Outlast) -> Any:
    @ol.task(name="of_theirs", tenant="b", queue="shared")
    def theirs() -> None: ...

    @ol.task(name="of_mine", tenant="a", queue="shared")
    def mine() -> None: ...

    return theirs, mine


def seen(served: Served, id: str, token: str) -> str:
    """All that is told of a job."""
    return " ".join(served.get(f"/api/v1/jobs/{id}{path}", token).text for path in PATHS)


def test_who_waits_for_another_tenant_s_job_does_not_learn_which(
    served: Served, tasks: Any
) -> None:
    """R145: while it waits, and when it died of it; a token for all of them is told."""
    theirs, mine = tasks
    before, after = served.ol.enqueue(chain(theirs.job(), mine.job()))
    own, everybody = served.token("read", tenant="a"), served.token("read")
    waiting = served.get(f"/api/v1/jobs/{after.id}/explain", own).json()["explanation"]
    assert waiting.endswith("it comes after; of others' jobs you are not told.")
    assert before.id in seen(served, after.id, everybody)
    served.ol.cancel(before.id)
    assert served.ol.job(after.id).state == "dead"
    told = seen(served, after.id, own)
    assert before.id not in told and "of_theirs" not in told
    assert "had to succeed before it" in told and "PrerequisiteFailed" in told
    assert before.id in seen(served, after.id, everybody)


def test_of_one_s_own_jobs_all_is_told(served: Served, tasks: Any) -> None:
    """The same within one tenant names them."""
    _, mine = tasks
    before, after = served.ol.enqueue(chain(mine.job(), mine.job()))
    own = served.token("read", tenant="a")
    assert before.id in served.get(f"/api/v1/jobs/{after.id}/explain", own).text
    served.ol.cancel(before.id)
    assert before.id in served.get(f"/api/v1/jobs/{after.id}", own).text
    assert before.id in served.get(f"/api/v1/jobs/{after.id}/explain", own).text


def test_a_redrive_opens_no_flow_of_another_tenant(served: Served, tasks: Any) -> None:
    """R145: what is dead because of one's own job may be somebody else's, in a flow of theirs."""
    theirs, mine = tasks
    before = mine.enqueue()
    (after,) = served.ol.enqueue(chain(theirs.using(after=[before.id]).job()))
    served.ol.cancel(before.id)
    served.ol.cancel_flow(after.flow)
    cancelled = served.ol.flow(after.flow).cancelled_at
    assert cancelled is not None
    token = served.token("admin", tenant="a")
    assert served.post(f"/api/v1/jobs/{before.id}/redrive", token).status_code == 200
    assert served.ol.job(before.id).state == "ready"
    assert served.ol.job(after.id).state in ("dead", "cancelled")
    assert served.ol.flow(after.flow).cancelled_at == cancelled
