"""What a job of a remote worker costs the server in Python, counted and not timed, as in
tests/worker/test_calls.py."""

from __future__ import annotations

import cProfile

from outlast import Outlast
from outlast.ops.access import ALL_JOBS
from outlast.ops.offer import OfferRequest
from outlast.protocol import offer_frames
from outlast.service.components import Service
from outlast.service.dequeue.report_batch import ReportBatch
from outlast.service.dequeue.report_models import TaskReport
from outlast.service.dequeue.stream import WorkerStream
from outlast.service.dequeue.worker_info import RemoteWorkerInfo
from outlast.service.streaming import JsonLines
from tests.service.streaming import QUICK

KEY = b"k" * 32
JOBS = 200
MOST_CALLS = 150  # 142 on PostgreSQL, 131 on SQLite


async def test_a_job_of_a_remote_worker_takes_no_more_calls_than_it_did(ol: Outlast) -> None:
    """R142, R180: to offer it, and to take its acceptance and its outcome."""

    @ol.task
    def work(n: int) -> int:
        return n

    await ol.aenqueue(*(work.job(n) for n in range(2 * JOBS)))
    service = Service(ol, QUICK)
    info = RemoteWorkerInfo("remote-w", "host", 1, None, (work.name,), None, credit=1000)
    stream = WorkerStream(service.dispatcher, info, JsonLines(), KEY)
    await carried_out(service, stream)  # everything is imported
    profile = cProfile.Profile()
    profile.enable()
    try:
        await carried_out(service, stream)
    finally:
        profile.disable()
    assert (await ol.acounts())["succeeded"] == 2 * JOBS
    calls = sum(entry.callcount for entry in profile.getstats()) / JOBS
    assert calls <= MOST_CALLS
    await service.dispatcher.steady.aclose()
    await ol.aclose()


async def carried_out(service: Service, stream: WorkerStream) -> None:
    desk = service.dispatcher
    request = OfferRequest(desk.id, "default", JOBS, 60.0, tasks=stream.info.tasks)
    claims = await desk.offer(stream, request)
    frames = list(offer_frames(claims, stream.sign))
    assert b"".join(JsonLines().write(frame) for frame in frames)
    tokens = [job["token"] for frame in frames for job in frame["jobs"]]
    assert len(tokens) == JOBS
    for reports in (
        [TaskReport(do="renew", token=token) for token in tokens],
        [TaskReport(do="complete", token=token, result="1") for token in tokens],
    ):
        answers = await ReportBatch(desk, KEY, ALL_JOBS, service.queue_names).process(reports)
        assert {answer["status"] for answer in answers} == {"ok"}
