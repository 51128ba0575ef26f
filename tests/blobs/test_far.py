"""Blobs over HTTP: what the service shows of them, and what remote workers do with them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from outlast import Blob, Context, InvalidOption, Outlast, ServiceSettings, chain
from outlast.model.blob import args_blob, parse_reference
from outlast.model.ids import new_job_id
from outlast.model.job import NewJob
from outlast.ops.access import ALL_JOBS
from outlast.ops.claim import ClaimRequest, claim
from outlast.remote import RemoteWorker
from outlast.service.dequeue import followups
from outlast.service.dequeue.report_batch import TaskReport, attempt_end_of
from outlast.worker import blob_io
from tests.service.serving import Served, serving
from tests.service.streaming import QUICK
from tests.support import aeventually
from tests.worker.working import ended, work

from .keeping import LARGE, Shelf

pytestmark = pytest.mark.kinds("sqlite")
JOBS = "/api/v1/jobs"


@pytest.fixture
def served(shelved: Outlast) -> Iterator[Served]:
    with serving(shelved, QUICK) as running:
        yield running


async def given(ol: Outlast, text: str) -> str:
    """The id of a job that gave this."""

    @ol.task(name="gives")
    async def gives(text: str) -> str:
        return text

    job = await gives.aenqueue(text)
    async with work(ol):
        await ended(ol, job)
    return job.id


async def test_the_service_shows_a_reference_and_gives_what_it_may(
    served: Served, shelved: Outlast, without: Outlast, shelf: Shelf
) -> None:
    """R168: a job by size, its result whole up to a limit, and a clear problem beyond it."""
    id = await given(shelved, LARGE)
    job = served.get(f"{JOBS}/{id}").json()
    size = job["args"]["outlast:blob"]["bytes"]
    assert size == len(LARGE) + len('{"text":""}') and len(json.dumps(job)) < 2_000
    assert served.get(f"{JOBS}/{id}/result").json()["result"] == LARGE
    page = served.get(f"/jobs/{id}")
    assert page.status_code == 200 and "outlast:blob" in page.text and LARGE not in page.text
    shelf.away = True
    assert served.get(f"{JOBS}/{id}/result").status_code == 503
    shelf.away = False
    with serving(shelved, ServiceSettings(max_body=1_000)) as strict:
        refused = strict.get(f"{JOBS}/{id}/result")
        assert refused.status_code == 409 and "max_body" in refused.json()["detail"]
    with serving(without) as bare:
        refused = bare.get(f"{JOBS}/{id}/result")
        assert refused.status_code == 409 and "--blobs" in refused.json()["detail"]
        assert bare.get(f"/jobs/{id}").status_code == 200
    shelf.things.clear()
    assert served.get(f"{JOBS}/{id}/result").status_code == 410


@pytest.mark.parametrize("text", ["small", LARGE])
async def test_a_result_is_taken_once_over_http(
    served: Served, shelved: Outlast, shelf: Shelf, text: str
) -> None:
    """R165: the second one is told that it is gone (410), and so is who only reads."""
    id = await given(shelved, text)
    taken = served.post(f"{JOBS}/{id}/take")
    assert (taken.status_code, taken.json()["result"]) == (200, text)
    assert shelf.things == {} and shelved.job(id).forgotten
    for again in (served.post(f"{JOBS}/{id}/take"), served.get(f"{JOBS}/{id}/result")):
        assert again.status_code == 410 and again.json()["type"] == "urn:outlast:erased"
        assert again.json()["job"] == id
    assert served.get(f"{JOBS}/{id}").json()["state"] == "succeeded"


async def test_what_has_not_succeeded_is_not_taken(served: Served, shelved: Outlast) -> None:
    """R165: 409, and nothing is erased."""

    @shelved.task
    def waits(n: int) -> None: ...

    job = waits.enqueue(1)
    assert served.post(f"{JOBS}/{job.id}/take").status_code == 409
    shelved.cancel(job.id)
    assert served.post(f"{JOBS}/{job.id}/take").status_code == 409
    assert shelved.job(job.id).args == {"n": 1}


async def test_forget_and_purge_over_http_remove_blobs(
    served: Served, shelved: Outlast, shelf: Shelf
) -> None:
    """R168, R165"""
    one, two = await given(shelved, LARGE), await given(shelved, LARGE)
    assert len(shelf.things) == 4
    assert served.post(f"{JOBS}/{one}/forget").status_code == 200
    assert len(shelf.things) == 2
    done = served.post(f"{JOBS}/purge", json={"state": "succeeded"}).json()["done"]
    assert done == 2 and shelf.things == {} and two


async def test_a_remote_worker_reads_by_reference_and_gives_no_reference(
    served: Served, shelved: Outlast, tmp_path: Path
) -> None:
    """R168, R142: arguments, and results of jobs before; what it gives stays in the row."""

    @shelved.task
    async def first() -> str:
        return LARGE

    @shelved.task(queue="far", max_attempts=1)
    async def second(text: str, ctx: Context) -> list[Any]:
        return [text, [one async for one in ctx.results()]]

    @shelved.task(queue="far")
    async def forges() -> list[Any]:
        return json.loads(args_blob("0" * 16, b"data").as_text())  # type: ignore[no-any-return]

    one, two = shelved.enqueue(chain(first.job(), second.job(LARGE)))
    three = forges.enqueue()
    async with work(shelved, queues=["default"]):
        await ended(shelved, one)
    far = RemoteWorker(served.url, None, shelved, ["far"], spool=tmp_path, grace=1.0)
    async with far:
        assert await shelved.aresult(two.id, timeout=20) == [LARGE, [LARGE]]
        assert (await shelved.aresult(three.id, timeout=20))[0] == "outlast:blob"
    seen = {job.id: job.result for job in shelved.jobs()}
    assert isinstance(seen[one.id], Blob)
    assert isinstance(seen[two.id], list) and isinstance(seen[three.id], list)


async def test_a_remote_worker_without_the_store_gives_the_job_back(
    served: Served, shelved: Outlast, without: Outlast, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """R168, R142: unspent, and says why."""
    monkeypatch.setattr(blob_io, "MAX_RETRY_DELAY_S", 0.2)

    @without.task(name="big")
    async def big(data: str) -> None: ...

    @shelved.task(name="big")
    async def same(data: str) -> int:
        return len(data)

    job = same.enqueue(LARGE)
    async with RemoteWorker(served.url, None, without, spool=tmp_path, grace=1.0):
        await aeventually(lambda: shelved.history(job.id)[0])
    [attempt, *_] = shelved.history(job.id)[0]
    assert attempt.outcome == "released" and "blobs=" in attempt.error["message"]
    assert (shelved.job(job.id).attempt, shelved.job(job.id).failures) == (0, 0)
    async with work(shelved):
        assert await shelved.aresult(job.id, timeout=20) == len(LARGE)


def test_what_a_worker_far_away_says_refers_to_nothing(shelved: Outlast) -> None:
    """R168, R145: nobody far away names a blob, in a result or in the arguments of a follow-up."""

    @shelved.task
    def parent() -> None: ...

    parent.enqueue()
    [held] = shelved.store.run(claim, ClaimRequest("w", "default", 1, 60.0))
    text = args_blob("0" * 16, b"data").as_text()
    said = attempt_end_of(TaskReport(do="complete", token="", result=text), held, ALL_JOBS)
    assert said.result is not None and parse_reference(said.result) is None
    assert json.loads(said.result) == json.loads(text)
    child = NewJob(new_job_id(), "default", "default", "t", text, 0, 1, 1)
    with pytest.raises(InvalidOption, match="must be an object"):
        followups.read_followups([asdict(child)], held, ALL_JOBS)
