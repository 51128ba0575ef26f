"""Inbox: the declaration of `ol.source(…)`, and the conversion of each message to one job."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ..model.errors import InvalidArguments, InvalidOption
from ..model.ids import new_job_id
from ..model.job import NewJob
from ..model.message import Message, undecodable, with_message
from ..model.options import MAX_NAME_CHARS, Options, check_name, check_whole, seconds
from ..model.safe_text import error_summary
from ..model.task import TaskDefinition
from ..task import BoundTask
from ..tracing import valid_traceparent
from .http import Http
from .protocols import Source

if TYPE_CHECKING:
    from ..client.client import Outlast
    from ..model.settings import RetentionSettings

KEY_PREFIX = "in:"
MAX_RECEIVED = 1000  # messages of one call
MAX_RECEIVE_WAIT_S = 60.0

Decode = Callable[[Message], Any]


class Inbox:
    """A source and the task of its jobs."""

    def __init__(  # noqa: PLR0913 - as the contract has it
        self,
        app: Outlast,
        name: str,
        source: Source | Http,
        task: BoundTask[..., Any],
        *,
        batch: int = 100,
        wait: float = 20.0,
        decode: Decode | None = None,
    ) -> None:
        self.app = app
        self.name = check_name("name", name)
        self.source = _checked_source(source)
        self.task = _checked_task(task)
        check_whole("batch", batch, 1, MAX_RECEIVED)
        self.batch = batch
        self.wait = seconds("wait", wait) or 0.0
        if self.wait > MAX_RECEIVE_WAIT_S:
            reason = f"must be at most {MAX_RECEIVE_WAIT_S:g} seconds, not {wait!r}"
            raise InvalidOption(option="wait", reason=reason)
        if decode is not None and not callable(decode):
            raise InvalidOption(option="decode", reason=f"must be a function, not {decode!r:.80}")
        self._decode = decode or _json_body
        check_retention(self.redelivery, app.retention, name)

    @property
    def redelivery(self) -> float:
        return float(self.source.redelivery)

    @property
    def definition(self) -> TaskDefinition:
        return self.task._definition

    @property
    def queue(self) -> str:
        return str(self.definition._job_fields(self._options)["queue"])

    @property
    def _options(self) -> Options:
        return self.task._options

    def job(self, message: Message, limit: int) -> tuple[NewJob, bool]:
        """The job of a message, and whether the message could be decoded: otherwise the job becomes
        dead."""
        try:
            return self._new_job(message, self._args(message, limit)), True
        except _Undecodable as error:
            return self._new_job(message, error.args_text), False

    def refused_job(self, message: Message, problem: str, limit: int) -> NewJob:
        """The job of a message that the database refused: its body in base 64, and the reason."""
        text = undecodable(Message(message.id, message.raw), problem, limit, ascii_only=True)
        return self._new_job(message, text)

    def _new_job(self, message: Message, args: str) -> NewJob:
        fields = self.definition._job_fields(self._options)
        job = NewJob(id=new_job_id(), task=self.definition.name, args=args, **fields)
        # Messages without an id must not count as repeats: each delivery is a new message.
        job.key = message_key(self.name, message.id or job.id)
        job.trace = valid_traceparent(message.headers.get("traceparent"))
        return job

    def _args(self, message: Message, limit: int) -> str:
        arguments = self.definition.arguments
        try:
            body = self._decode(message)
        except Exception as error:
            problem = f"the message cannot be decoded: {error_summary(error)}"
            raise self._refused(message, problem, limit) from error
        given = dict.fromkeys(arguments.positional[:1], body)
        try:
            text = arguments.encode((), given, limit)
        except InvalidArguments as error:
            raise self._mismatch(message, given, error, limit) from error
        whole = with_message(text, message, raw=not arguments.secrets)
        if len(whole) > limit:  # the arguments alone may fit
            whole = with_message(text, message, raw=False)
        if len(whole) > limit:
            problem = f"the message has {len(whole):,} bytes, the limit of a job is {limit:,}"
            raise self._refused(message, problem, limit)
        return whole

    def _mismatch(
        self, message: Message, given: dict[str, object], error: InvalidArguments, limit: int
    ) -> _Undecodable:
        """A JSON message that does not fit the task: stored unchanged, so that it can be retried
        when the task has been fixed."""
        with suppress(ValueError, TypeError, RecursionError):
            text = json.dumps(given, allow_nan=False)
            whole = with_message(text, message)
            if len(whole) > limit:
                whole = with_message(text, message, raw=False)
            storable = "\\u0000" not in text and "\\ud" not in text and len(whole) <= limit
            if storable and not self.definition.arguments.secrets:
                return _Undecodable(whole)
        return self._refused(message, str(error), limit)

    def _refused(self, message: Message, problem: str, limit: int) -> _Undecodable:
        if self.definition.arguments.secrets:
            message = Message(message.id, headers=message.headers)
        return _Undecodable(undecodable(message, problem, limit))

    def __repr__(self) -> str:
        return f"<source {self.name}: {self.source!r} to {self.definition.name}>"


class _Undecodable(Exception):
    """A message that cannot be a call of the task, with the arguments of its dead job."""

    def __init__(self, args_text: str) -> None:
        super().__init__()
        self.args_text = args_text


def message_key(source: str, id: str) -> str:
    """The idempotency key of a message."""
    key = f"{KEY_PREFIX}{source}:{id}"
    if len(key) <= MAX_NAME_CHARS and key.isprintable():
        return key
    digest = hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{KEY_PREFIX}{source[:100]}:sha256:{digest}"


def check_name_is_free(known: Inbox | None, made: Inbox) -> None:
    """Refuse a name that another source has; a repeated import declares the same source again."""
    if known is not None and repr(known) != repr(made):
        raise InvalidOption(option="name", reason=f"{made.name!r} is taken by {known!r}")


def check_retention(redelivery: float, retention: RetentionSettings, name: str) -> None:
    """Check that the row of a job, and so its key, outlasts the broker's redeliveries."""
    kept = min(retention.keep_succeeded, retention.keep_cancelled)
    if kept < redelivery:
        raise InvalidOption(
            option="source",
            reason=f"{name!r} may redeliver for {redelivery:g} s, but ended jobs, whose keys show"
            f" known messages, are kept for {kept:g} s: raise keep_succeeded and keep_cancelled, or"
            " give the source a shorter redelivery=…",
        )


def _json_body(message: Message) -> object:
    return message.body


def _checked_source(source: object) -> Source | Http:
    if not isinstance(source, Source | Http):
        raise InvalidOption(
            option="source",
            reason="must have open, receive, acknowledge, hand_back, lag, redelivery and close"
            f" (outlast.bridges.Source), or be Http(…), not {source!r:.80}",
        )
    return source


def _checked_task(task: object) -> BoundTask[..., Any]:
    if not isinstance(task, BoundTask):
        raise InvalidOption(option="task", reason=f"must be a task, not {task!r:.80}")
    if task._options.key is not None:
        raise InvalidOption(option="task", reason="cannot have a key: each message brings its own")
    return task
