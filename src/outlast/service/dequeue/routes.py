"""The endpoints of remote workers: open a stream, report, say goodbye."""

from __future__ import annotations

import asyncio
import logging
from contextlib import ExitStack, suppress
from typing import Annotated, Any

from pydantic import BaseModel, Field
from pydantic_core import to_json
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ...model.errors import OutlastError
from ...model.offer import remote_id
from ...model.options import LONGEST_NAME
from ...model.tokens import Scope as May
from ...ops.leave import leave as leave_op
from .. import problems
from ..calls import Call
from ..problems import Forbidden, Invalid, Refused, Unavailable
from ..route import Route
from . import asides, frames, tokens
from .asker import Asker
from .desk import Desk
from .reports import Taking
from .said import AllAnswered, Closed, Reports
from .stream import Stream

log = logging.getLogger("outlast.service")

PATIENCE = 5.0  # seconds to wait for the desk to open
LAST_WORDS = 1.0  # seconds that a stream's end may take

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")]
Names = Annotated[str, Field(max_length=6000, description="separated by commas")]


class Wish(Closed):
    """What a worker wants."""

    worker: Name = Field(description="what it calls itself, anew at every start")
    tasks: Names = Field(min_length=1, description="names of tasks it knows, separated by commas")
    queues: Names | None = Field(None, description="only these; else all that the token reaches")
    credit: int = Field(1, ge=1, le=10_000, description="how many jobs it can hold at once")
    host: str = Field("", max_length=200, description="where it runs, for people to see")
    pid: int = Field(0, ge=0, le=2**31 - 1)


class Goodbye(Closed):
    worker: Name


class Left(BaseModel):
    released: int = Field(description="jobs that it still held, and that were put back")


async def dequeue(call: Call) -> Response:
    desk = await _desk(call)
    format = frames.chosen(call.request.headers.get("accept", ""))
    key = await call.service.key(tokens.PURPOSE)
    stream = Stream(desk, _asker(call), format, key)
    return Streaming(call, stream, format.media)


async def report_tasks(call: Call) -> Response:
    desk = await _desk(call)
    key = await call.service.key(tokens.PURPOSE)
    said: Reports = call.body
    taking = desk.spawn(Taking(desk, key, call.reach).take(said.reports, said.ahead))
    answers = await asyncio.shield(taking)  # what has begun comes to its end
    return Response(to_json({"reports": answers}), media_type="application/json")


async def leave_dequeue(call: Call) -> Left:
    """Its streams end, what it held is put back unspent, and its card is taken down."""
    worker = remote_id(_owner(call), call.query.worker)
    desk = await _desk(call)
    for stream in tuple(desk.streams):
        if stream.worker == worker:
            stream.end("its worker has left")
    return Left(released=await call.ol.store.arun(leave_op, worker))


class Streaming(Response):
    """An answer that goes on. Whichever way it ends, the stream is closed."""

    def __init__(self, call: Call, stream: Stream, media: str) -> None:
        self.background = None
        self.status_code = 200
        self.init_headers({"content-type": media, "x-accel-buffering": "no"})
        self._call = call
        self._stream = stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with ExitStack() as held:
            try:
                held.enter_context(self._call.service.worker_streams.slot(self._call.who))
            except Refused as full:
                await problems.answer(full)(scope, receive, send)
                return
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            if scope["method"] != "HEAD":
                await self._stream_out(receive, send)
        with suppress(TimeoutError):  # of one who reads nothing
            async with asyncio.timeout(LAST_WORDS):
                await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _stream_out(self, receive: Receive, send: Send) -> None:
        async def say(data: bytes) -> None:
            await send({"type": "http.response.body", "body": data, "more_body": True})

        async with self._call.while_allowed() as over:
            running = asyncio.create_task(self._stream.run(say))
            gone = asyncio.create_task(_gone(receive))
            shown_out = asyncio.create_task(over.wait())
            every = {running, gone, shown_out}
            try:
                await asyncio.wait(every, return_when=asyncio.FIRST_COMPLETED)
                if shown_out.done():
                    self._stream.end("this token is no longer good")
                    await asyncio.wait({running}, timeout=LAST_WORDS)
                if running.done() and not running.cancelled():
                    _tell_why(self._stream.worker, running.exception())
            finally:
                self._stream.close()  # first, and without waiting: we may be cancelled
                await _end(every)


def _tell_why(worker: str, error: BaseException | None) -> None:
    """The answer has begun, so its reader cannot be told."""
    if isinstance(error, OutlastError):
        log.warning("the stream of %s broke off: %s", worker, error)
    elif isinstance(error, TimeoutError):
        log.warning("the stream of %s is closed: it takes nothing in", worker)
    elif error is not None:
        log.error("the stream of %s failed: %s", worker, error, exc_info=error)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _end(tasks: set[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _desk(call: Call) -> Desk:
    desk = call.service.desk
    try:
        async with asyncio.timeout(PATIENCE):
            await desk.here.wait()
    except TimeoutError:
        raise Unavailable("the server is not ready yet") from None
    return desk


def _asker(call: Call) -> Asker:
    wish, who = call.query, call.who
    queues = None if wish.queues is None else frozenset(_split("queues", wish.queues))
    if queues is None:
        queues = who.queues
    elif strange := sorted(queue for queue in queues if not who.serves(queue)):
        raise Forbidden(f"these queues are out of this token's reach: {', '.join(strange)[:200]}")
    return Asker(
        worker=remote_id(_owner(call), wish.worker),
        host=wish.host or "unknown",
        pid=wish.pid,
        queues=queues,
        tasks=tuple(_split("tasks", wish.tasks)),
        tenant=who.tenant,
        credit=min(wish.credit, call.service.settings.max_credit),
    )


def _split(what: str, text: str) -> list[str]:
    names = sorted({name.strip() for name in text.split(",")})
    if any(not 0 < len(name) <= LONGEST_NAME for name in names):
        raise Invalid(f"{what} must be names of at most {LONGEST_NAME} characters")
    return names


def _owner(call: Call) -> str:
    """Enough of a token's id to tell it from all others."""
    return (call.who.token or "local")[-12:]


ROUTES = (
    Route("GET", "/api/v1/dequeue", May.WORK, dequeue, "A stream of jobs for a remote worker",
          query=Wish, media=(frames.NDJSON, frames.SSE)),
    Route("DELETE", "/api/v1/dequeue", May.WORK, leave_dequeue, "A remote worker says goodbye",
          query=Goodbye, response=Left),
    Route("POST", "/api/v1/tasks/reports", May.WORK, report_tasks, "What became of offered jobs",
          request=Reports, response=AllAnswered),
    Route("POST", "/api/v1/tasks/steps", May.WORK, asides.keep_step, "Look up or keep a step",
          request=asides.Step, response=asides.Kept, statuses=(409,)),
    Route("POST", "/api/v1/tasks/prerequisites", May.WORK, asides.read_prerequisites,
          "The jobs that a job comes after", request=asides.Before, response=asides.Page),
)  # fmt: skip
