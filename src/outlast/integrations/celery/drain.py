"""Messages of Celery as jobs, during the migration: each becomes a job of its task.

task id          the job's id (a derived UUID if it is not a UUID), and its key
eta, expires     the job's own; `retries` continue
unknown tasks    the job waits until a worker knows the task
chains, callbacks, errbacks    enqueued when the job has ended accordingly
members of a chord, pickle, anything unreadable    a dead job with the raw body and the reason
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...bridges.celery import PROBLEM, CeleryQueue
from ...bridges.inbox import Inbox, check_name_is_free, message_key
from ...model.job import NewJob
from ...model.message import Message, undecodable
from ...model.options import MAX_PRIORITY
from ...model.safe_text import error_summary
from ...worker.context import Context
from .canvas import read_signature
from .json_types import to_python
from .sending import call_of, job_id_of

if TYPE_CHECKING:
    from .app import Celery

UNREADABLE = "celery.unreadable"  # the task of messages without a task


def drain(app: Celery, queue: CeleryQueue, **loop: Any) -> CeleryInbox:
    """Declare the queue as a source of the app."""
    name = f"celery:{queue.queue}"
    ol = app.ol
    if ol.registry.get(UNREADABLE) is None:
        ol.task(name=UNREADABLE, max_attempts=1)(unreadable)
    made = CeleryInbox(app, name, queue, **loop)
    check_name_is_free(ol.declared_sources.get(name), made)
    ol.declared_sources[name] = made
    return made


def unreadable(ctx: Context, body: Any = None) -> None:
    """The task of unreadable messages. It is never called: its jobs are inserted dead."""


class CeleryInbox(Inbox):
    """An inbox that converts the messages of a Celery queue to jobs."""

    def __init__(self, app: Celery, name: str, queue: CeleryQueue, **loop: Any) -> None:
        from ...task import Task

        fallback: Task[..., Any] = Task(app.ol, app.ol.registry[UNREADABLE])
        super().__init__(app.ol, name, queue, fallback.using(queue=queue.queue), **loop)
        self._celery = app
        self._low_first = queue.low_first

    def job(self, message: Message, limit: int) -> tuple[NewJob, bool]:
        try:
            if problem := message.headers.get(PROBLEM):
                raise ValueError(problem)
            return self._job_of_task(message, limit), True
        except Exception as error:  # no message may stop the others
            problem = f"the message cannot be a job: {error_summary(error)}"
            return self._new_job(message, undecodable(message, problem, limit)), False

    def _job_of_task(self, message: Message, limit: int) -> NewJob:
        headers = message.headers
        args, kwargs, embed = message.body
        embed = embed or {}
        if embed.get("chord"):
            raise ValueError(
                "it belongs to a chord, whose members Celery counts in its result backend: finish"
                " chords with Celery's workers, or enqueue it anew"
            )
        to_python([args, kwargs])  # raises if unreadable
        options: dict[str, Any] = {name: headers.get(name) for name in ("eta", "expires")}
        options |= {"queue": self.queue, "task_id": message.id, "time_limit": _limit(headers)}
        options["link_error"] = [
            read_signature(one, self._celery) for one in embed.get("errbacks") or ()
        ]
        call = call_of(
            self._celery,
            headers["task"],
            args,
            kwargs,
            options,
            checked=False,
            then=following(embed) or None,
            retries=int(headers.get("retries") or 0) or None,
        )
        job = call.new_job(job_id_of(message.id), limit)
        job.key = message_key(self.name, message.id)
        job.priority = self._priority(headers.get("priority"))
        return job

    def _priority(self, given: str | None) -> int:
        """The job's priority. With Redis, 0 is the highest, with RabbitMQ the lowest."""
        number = min(int(given or 0), MAX_PRIORITY)
        return -number if self._low_first else number


def following(embed: Mapping[str, Any]) -> list[Any]:
    """The calls that follow a success: callbacks, and the rest of a chain, which is stored in
    reverse order."""
    then: Any = None
    for step in embed.get("chain") or ():
        then = step if then is None else _before(step, then)
    return [*(embed.get("callbacks") or ()), *([then] if then is not None else ())]


def _before(step: Mapping[str, Any], then: object) -> dict[str, object]:
    """A step of a chain with the steps that follow it."""
    if step.get("subtask_type") is not None:
        return {"task": "celery.chain", "kwargs": {"tasks": [step, then]}, "subtask_type": "chain"}
    options = dict(step.get("options") or {})
    options["link"] = [*(options.get("link") or ()), then]
    return {**step, "options": options}


def _limit(headers: Mapping[str, str]) -> float | None:
    hard, *_ = json.loads(headers.get("timelimit") or "[null]")
    return None if hard is None else float(hard)
