"""The endpoints of remote workers: open a stream, report, deregister."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from contextlib import ExitStack
from typing import Annotated

from pydantic import BaseModel, Field
from pydantic_core import to_json
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ...model.api_token import Scope as May
from ...model.errors import OutlastError
from ...model.options import MAX_NAME_CHARS
from ...model.worker_names import remote_id
from ...ops.workers import deregister as leave_op
from ...protocol import (
    MAX_CREDIT,
    NDJSON,
    PREREQUISITES_PATH,
    REPORTS_PATH,
    SCHEDULES_PATH,
    SLOW_DOWN_PATH,
    SSE,
    STEPS_PATH,
    STREAM_PATH,
)
from .. import problems
from ..problems import Forbidden, RequestRefused, Unavailable, UnprocessableBody
from ..request import RequestContext
from ..route import Route
from ..streaming import JsonLines, body_message, disconnected, format_for, send_final
from . import announcements, step_routes, task_tokens
from .dispatcher import Dispatcher
from .long_poll import DequeuedJobs, LongPollResponse
from .report_batch import ReportBatch
from .report_models import ClosedModel, ReportAnswers, TaskReports
from .stream import WorkerStream
from .worker_info import RemoteWorkerInfo

log = logging.getLogger("outlast.service")

OPEN_WAIT_S = 5.0  # seconds to wait for the dispatcher to open
END_TIMEOUT_S = 1.0  # seconds that a stream's end may take

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")]
Names = Annotated[str, Field(max_length=6000, description="separated by commas")]


class DequeueQuery(ClosedModel):
    """The parameters of a worker."""

    worker: Name = Field(description="its name, new at every start")
    tasks: Names = Field(min_length=1, description="names of its tasks, separated by commas")
    queues: Names | None = Field(
        None, description="only these; default: all that the token may access"
    )
    credit: int = Field(1, ge=1, le=MAX_CREDIT, description="maximum jobs that it holds")
    host: str = Field("", max_length=200, description="its host, for display")
    pid: int = Field(0, ge=0, le=2**31 - 1)


class PollQuery(DequeueQuery):
    """The parameters of a worker, and the time that it waits for jobs."""

    wait: float = Field(
        20.0, ge=0, le=3600, description="seconds to wait for a job, up to max_wait"
    )


class LeaveBody(ClosedModel):
    worker: Name


class LeaveResult(BaseModel):
    released: int = Field(description="jobs that it still held, and that were released")


async def dequeue(call: RequestContext) -> Response:
    dispatcher = await _dispatcher_of(call)
    format = format_for(call.request.headers.get("accept", ""))
    key = await call.service.key(task_tokens.PURPOSE)
    stream = WorkerStream(dispatcher, _worker_info(call), format, key)
    return DequeueResponse(call, stream, format.media)


async def poll_jobs(call: RequestContext) -> Response:
    """Offer jobs in one response."""
    dispatcher = await _dispatcher_of(call)
    key = await call.service.key(task_tokens.PURPOSE)
    stream = WorkerStream(dispatcher, _worker_info(call), JsonLines(), key)
    return LongPollResponse(call, stream, min(call.query.wait, call.service.settings.max_wait))


async def report_tasks(call: RequestContext) -> Response:
    dispatcher = await _dispatcher_of(call)
    key = await call.service.key(task_tokens.PURPOSE)
    reports: TaskReports = call.body
    taking = ReportBatch(dispatcher, key, call.reach, call.service.queue_names)
    taken = dispatcher.spawn(taking.process(reports.reports, reports.ahead))
    answers = await asyncio.shield(taken)  # a started batch runs to its end
    return Response(to_json({"reports": answers}), media_type="application/json")


async def leave_dequeue(call: RequestContext) -> LeaveResult:
    """End its streams, release its jobs unspent, and deregister it."""
    worker = remote_id(_token_owner(call), call.query.worker)
    dispatcher = await _dispatcher_of(call)
    for stream in tuple(dispatcher.streams):
        if stream.worker == worker:
            stream.end("the worker has deregistered")
    dispatcher.polling.left(worker)
    return LeaveResult(released=await call.ol.store.arun(leave_op, worker))


class DequeueResponse(Response):
    """The streaming response, which always closes the stream."""

    def __init__(self, call: RequestContext, stream: WorkerStream, media: str) -> None:
        self.background = None
        self.status_code = 200
        self.init_headers({"content-type": media, "x-accel-buffering": "no"})
        self._call = call
        self._stream = stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with ExitStack() as held:
            try:
                held.enter_context(self._call.service.worker_streams.slot(self._call.who))
            except RequestRefused as full:
                await problems.problem_response(full)(scope, receive, send)
                return
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            if scope["method"] != "HEAD":
                await self._run_stream(receive, send)
        await send_final(b"", scope, receive, send)

    async def _run_stream(self, receive: Receive, send: Send) -> None:
        async def say(data: bytes) -> None:
            await send(body_message(data, more=True))

        async with self._call.while_allowed() as over:
            running = asyncio.create_task(self._stream.run(say))
            gone = asyncio.create_task(disconnected(receive))
            shown_out = asyncio.create_task(over.wait())
            every = {running, gone, shown_out}
            try:
                await asyncio.wait(every, return_when=asyncio.FIRST_COMPLETED)
                if shown_out.done():
                    self._stream.end("this token is no longer valid")
                    await asyncio.wait({running}, timeout=END_TIMEOUT_S)
                if running.done() and not running.cancelled():
                    _log_failure(self._stream.worker, running.exception())
            finally:
                self._stream.close()  # first, and without waiting: this may be cancelled
                await _cancel_all(every)


def _log_failure(worker: str, error: BaseException | None) -> None:
    """The response has started, so no error status can be sent."""
    if isinstance(error, OutlastError):
        log.warning("the stream of %s was interrupted: %s", worker, error)
    elif isinstance(error, TimeoutError):
        log.warning("the stream of %s is closed: the worker does not read", worker)
    elif error is not None:
        log.error("the stream of %s failed: %s", worker, error, exc_info=error)


async def _cancel_all(tasks: Iterable[asyncio.Task[object]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _dispatcher_of(call: RequestContext) -> Dispatcher:
    dispatcher = call.service.dispatcher
    try:
        async with asyncio.timeout(OPEN_WAIT_S):
            await dispatcher.is_open.wait()
    except TimeoutError:
        raise Unavailable("the server is not ready yet") from None
    return dispatcher


def _worker_info(call: RequestContext) -> RemoteWorkerInfo:
    query, who = call.query, call.who
    queues = None if query.queues is None else frozenset(_split_names("queues", query.queues))
    if queues is None:
        queues = who.queues
    elif unreachable := sorted(queue for queue in queues if not who.can_access(queue)):
        raise Forbidden(f"this token has no access to these queues: {', '.join(unreachable)[:200]}")
    return RemoteWorkerInfo(
        worker=remote_id(_token_owner(call), query.worker),
        host=query.host or "unknown",
        pid=query.pid,
        queues=queues,
        tasks=tuple(_split_names("tasks", query.tasks)),
        tenant=who.tenant,
        credit=min(query.credit, call.service.settings.max_credit),
    )


def _split_names(what: str, text: str) -> list[str]:
    names = sorted({name.strip() for name in text.split(",")})
    if any(not 0 < len(name) <= MAX_NAME_CHARS for name in names):
        raise UnprocessableBody(f"{what} must be names of at most {MAX_NAME_CHARS} characters")
    return names


def _token_owner(call: RequestContext) -> str:
    """A prefix of a token's id, long enough to be unique."""
    return (call.who.token or "local")[-12:]


ROUTES = (
    Route(
        "GET",
        STREAM_PATH,
        May.WORK,
        dequeue,
        "A stream of jobs for a remote worker",
        query=DequeueQuery,
        media=(NDJSON, SSE),
    ),
    Route(
        "POST",
        STREAM_PATH,
        May.WORK,
        poll_jobs,
        "The next jobs for a remote worker; with `wait`, as soon as there are any",
        query=PollQuery,
        response=DequeuedJobs,
    ),
    Route(
        "DELETE",
        STREAM_PATH,
        May.WORK,
        leave_dequeue,
        "Deregister a remote worker",
        query=LeaveBody,
        response=LeaveResult,
    ),
    Route(
        "POST",
        REPORTS_PATH,
        May.WORK,
        report_tasks,
        "Report on offered jobs",
        request=TaskReports,
        response=ReportAnswers,
    ),
    Route(
        "POST",
        STEPS_PATH,
        May.WORK,
        step_routes.keep_step,
        "Look up or store a step",
        request=step_routes.StepRequest,
        response=step_routes.StoredStep,
        statuses=(409,),
    ),
    Route(
        "POST",
        PREREQUISITES_PATH,
        May.WORK,
        step_routes.read_prerequisites,
        "The prerequisites of a job",
        request=step_routes.PrerequisitesQuery,
        response=step_routes.PrerequisitesPage,
    ),
    Route(
        "POST",
        SLOW_DOWN_PATH,
        May.WORK,
        step_routes.slow_lane_down,
        "Close a job's lane for a while, for all workers",
        request=step_routes.SlowDownRequest,
        response=step_routes.ClosedLane,
        statuses=(409,),
    ),
    Route(
        "POST",
        SCHEDULES_PATH,
        May.WORK,
        announcements.announce_schedules,
        "Announce the schedules of a remote worker's code",
        request=announcements.AnnounceRequest,
        response=announcements.AnnouncedSchedules,
        everyone=True,
        also=May.ENQUEUE,
    ),
)
