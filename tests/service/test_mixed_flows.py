"""A flow whose jobs are several tenants', or in several queues: who may see some of them learns of
those alone, and of the others not even that they are there."""

from __future__ import annotations

from typing import Any

import pytest

from outlast import Outlast, chain, group
from outlast.model.ids import new_job_id
from outlast.ops import workers as worker_ops
from tests.service.serving import Served
from tests.support import eventually

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
    assert waiting.endswith("; jobs of other tenants are not shown.")
    assert before.id in seen(served, after.id, everybody)
    served.ol.cancel(before.id)
    assert served.ol.job(after.id).state == "dead"
    told = seen(served, after.id, own)
    assert before.id not in told and "of_theirs" not in told
    assert "another tenant's prerequisite did not succeed" in told and "PrerequisiteFailed" in told
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


@pytest.fixture
def queued(ol: Outlast) -> Any:
    @ol.task(name="kept_task", queue="kept")
    def kept() -> None: ...

    @ol.task(name="open_task", queue="open")
    def open() -> None: ...

    return kept, open


def seen_anywhere(served: Served, id: str, token: str) -> str:
    """All that is told of a job, in lists and streams too, and to who would redrive it."""
    told = [
        seen(served, id, token),
        served.get("/api/v1/jobs", token).text,
        served.get(f"/jobs/{id}", token, headers={"accept": "text/html"}).text,
        served.get(f"/api/v1/jobs/{id}/events", token).text,
        served.post(f"/api/v1/jobs/{id}/redrive", token).text,
    ]
    return " ".join(told)


def test_who_died_of_a_job_in_another_queue_does_not_say_which(served: Served, queued: Any) -> None:
    """R145: a token for some queues learns of no job in others; who may see all is told."""
    kept, open = queued
    before, after = served.ol.enqueue(chain(kept.job(), open.job()))
    served.ol.cancel(before.id)
    assert served.ol.job(after.id).state == "dead"
    told = seen_anywhere(served, after.id, served.token("admin", queues=["open"]))
    assert "PrerequisiteFailed" in told and "a prerequisite did not succeed" in told
    assert before.id not in told and "kept_task" not in told
    assert before.id in seen(served, after.id, served.token("read"))


def test_who_fails_with_a_job_in_another_queue_does_not_say_which(
    served: Served, queued: Any
) -> None:
    """R145: the rest of a group is cancelled because of it; within one queue it is named."""
    kept, open = queued
    own = served.token("admin", queues=["open"])
    for other, named in ((kept, False), (open, True)):
        broken, rest = served.ol.enqueue(group(other.job(), open.job(), fail_fast=True))
        served.ol.cancel(broken.id)
        eventually(lambda rest=rest: served.ol.job(rest.id).final)  # the server goes on with it
        error = served.get(f"/api/v1/jobs/{rest.id}", own).json()["error"]
        assert error["type"] == "Cancelled"
        assert (broken.id in error["message"]) is named
        assert (broken.id in seen_anywhere(served, rest.id, own)) is named


def test_a_job_out_of_reach_is_not_found_in_the_same_words(served: Served, queued: Any) -> None:
    """R145: wherever an id can be said; whoever guesses learns nothing."""
    kept, _ = queued
    hidden, nobody_s = kept.enqueue().id, new_job_id()
    dead = kept.enqueue().id
    served.ol.cancel(dead)
    for limits in ({"queues": ["open"]}, {"tenant": "other"}):
        token = served.token("admin", **limits)

        def told(id: str, token: str = token) -> list[tuple[int, str]]:
            body = {"task": "t", "queue": "open", "after": [id]}
            answers = [
                served.post("/api/v1/jobs", token, json=body),
                served.post("/api/v1/jobs/batch", token, json={"jobs": [body]}),
                served.post("/api/v1/flows", token, json={"jobs": [{**body, "name": "a"}]}),
                *(served.get(f"/api/v1/jobs/{id}{path}", token) for path in (*PATHS, "/events")),
                *(
                    served.post(f"/api/v1/jobs/{id}/{verb}", token, json={})
                    for verb in ("cancel", "redrive", "forget", "reclaim")
                ),
            ]
            return [(one.status_code, one.text.replace(id, "ID")) for one in answers]

        unknown = told(nobody_s)
        assert {status for status, _ in unknown} == {404}
        assert told(hidden) == told(dead) == unknown


def test_how_many_wait_before_a_job_counts_one_s_own(served: Served, tasks: Any) -> None:
    """R145: that others wait in the same queue is theirs to know."""
    theirs, mine = tasks
    for _ in range(3):
        theirs.enqueue()
    mine.enqueue()
    job = mine.enqueue()
    served.ol.store.run(
        worker_ops.register,
        {**served.ol.worker().registration_row(), "tasks": '["of_mine"]', "id": "somebody"},
    )
    path = f"/api/v1/jobs/{job.id}/explain"
    assert "with 1 job of yours" in served.get(path, served.token("read", tenant="a")).text
    assert "with 4 jobs of its queue" in served.get(path, served.token("read")).text
