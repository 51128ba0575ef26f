"""Enqueueing: one job, many, and flows. Arguments are JSON; the tenant is the token's."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from uuid import UUID

from ...model.errors import FlowNotFound, KeyConflict
from ...model.flow import Chain, Enqueueable, Flow, Group
from ...model.job import Job, NewJob
from ...model.layout import new_jobs
from ...model.options import Options
from ...model.task import DEFAULT_QUEUE, Definition
from ...model.task import Call as TaskCall
from ...model.tokens import Scope
from ...ops.reach import EVERYTHING
from ...ops.search import all_in_reach, flow_in_reach
from ...tracing import carry_on
from ..apart import apart
from ..calls import Call
from ..problems import Conflict, Forbidden, Invalid
from ..route import Route
from . import PREFIX
from .asked import ChainBody, FlowBody, FlowJobBody, GroupBody, JobsBody, NewJobBody, Part
from .naming import at_most
from .views import EnqueuedJob, Jobs, NewFlow

if TYPE_CHECKING:
    from ...bridge.webhook import Webhook

IDEMPOTENCY = "idempotency-key"
LONGEST_KEY = 150
DEEPEST = 20  # chains in groups in chains


async def enqueue_job(call: Call) -> dict[str, Any]:
    (job,) = await _enqueued(call, lambda made: [made.job(call.body)])
    return _shown(call, job)


async def enqueue_jobs(call: Call) -> dict[str, Any]:
    body: JobsBody = call.body
    if IDEMPOTENCY in call.request.headers and all(job.key is not None for job in body.jobs):
        raise Invalid(
            "Idempotency-Key is for jobs without a `key` of their own, and all jobs of this batch"
            " have one: leave out the header"
        )
    jobs = await _enqueued(call, lambda made: [made.job(one) for one in body.jobs])
    return {"jobs": [_shown(call, job) for job in jobs]}


async def enqueue_flow(call: Call) -> dict[str, Any]:
    body: FlowBody = call.body
    if (body.jobs is None) == (body.flow is None):
        raise Invalid("a flow has either `jobs`, or a `flow` of chains and groups")
    jobs = await _enqueued(call, lambda made: [made.flow(body)])
    return {"flow": jobs[0].flow, "jobs": [_shown(call, job) for job in jobs]}


def _shown(call: Call, job: Job) -> dict[str, Any]:
    """A job of the same key may have existed before, with a result, an error and a worker: these
    need the scope `read`."""
    return job.as_json() if call.who.may(Scope.READ) else {"id": job.id, "state": job.state}


async def _enqueued(call: Call, planned: Callable[[_Made], Sequence[Enqueueable]]) -> list[Job]:
    made = _Made(call)
    jobs = await apart(call.size, lambda: made.all_of(planned(made)))
    if made.after and call.reach != EVERYTHING:
        await call.ol.store.arun(all_in_reach, made.after, call.reach)
    await call.service.queue_names.admit(jobs)
    carry_on(call.request.headers.get("traceparent"))  # a request is a task of its own
    try:
        return await call.ol._asend(jobs)
    except KeyConflict as conflict:
        await _hide_out_of_reach(call, conflict)
        raise


async def _hide_out_of_reach(call: Call, conflict: KeyConflict) -> None:
    """A flow's key is one for all queues of a tenant: its flow may be out of the token's reach."""
    flow = conflict.facts.get("flow")
    if flow is None or call.reach == EVERYTHING:
        return
    try:
        await call.ol.store.arun(flow_in_reach, flow, call.reach)
    except FlowNotFound:
        raise KeyTaken("this key already belongs to another flow: use another key") from None


class KeyTaken(Conflict):
    kind = "key-conflict"


class _Made:
    """What a request asks for as calls of tasks, counted; `after` are jobs that stand already."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._request_key = _request_key(call)
        self._number_keys = True
        self.number = 0
        self.after: set[str] = set()

    def all_of(self, plan: Sequence[Enqueueable]) -> list[NewJob]:
        at_most(self.number, self._call.service.settings.max_jobs, "jobs")
        return new_jobs(plan, limit=self._call.ol._largest)

    def job(self, body: NewJobBody) -> TaskCall:
        definition = self._call.ol.registry.get(body.task)
        arguments = body.args
        if definition is None:
            definition = _unseen(body.task)
        else:  # JSON has no dates: what the annotations make of the text is what is enqueued
            arguments = definition.arguments.decode(json.dumps(body.args))
        options = self._options(body)
        queue = options.queue or definition.options.queue or DEFAULT_QUEUE
        if not self._call.who.serves(queue):
            raise Forbidden(f"this token does not reach the queue {queue!r}")
        self.number += 1
        return TaskCall(definition, options, (), arguments)

    def _options(self, body: NewJobBody) -> Options:
        said = body.model_dump(exclude={"task", "args", "name"}, exclude_none=True)
        said["after"] = body.after or None
        said["tell"] = [self._webhook(name) for name in body.tell] or None
        if self._number_keys:
            said["key"] = self._job_key(body.key)
        self.after |= {id for one in body.after if (id := _id(one)) is not None}
        return Options(tenant=self._call.who.tenant, **said)

    def _webhook(self, name: str) -> Webhook:
        """Its url is the program's to say. One of another tenant is as if it were not there."""
        found, who = self._call.ol.webhooks.get(name), self._call.who
        if found is None or (found.tenant and who.tenant not in (None, found.tenant)):
            raise Invalid(f"no webhook {name!r} is defined by the program that is served here")
        if not who.serves(found.queue):
            raise Forbidden(f"this token does not reach the queue {found.queue!r}")
        return found

    def _job_key(self, own: str | None) -> str | None:
        """A repeated request finds its jobs by key. The header is the key of a single job; in a
        batch it is for the jobs that have no key of their own, which are numbered."""
        if not isinstance(self._call.body, JobsBody):
            return self._same_key(own)
        if own is None and self._request_key is not None:
            return f"{self._request_key}[{self.number}]"
        return own

    def _same_key(self, own: str | None) -> str | None:
        """The key, given by the header, in the body, or by both alike."""
        if None not in (own, self._request_key) and own != self._request_key:
            raise Invalid(
                f"Idempotency-Key is {self._request_key!r}, and `key` in the body is {own!r}: give"
                " one of them, or the same in both"
            )
        return own or self._request_key

    def flow(self, body: FlowBody) -> Flow | Chain | Group:
        self._number_keys = False  # the key belongs to the whole flow
        plan = self.graph(body) if body.flow is None else self.part(body.flow, DEEPEST)
        if not self.number:
            raise Invalid("a flow without jobs is none")
        key = self._same_key(body.key)
        return plan if key is None else plan.using(key=key)

    def graph(self, body: FlowBody) -> Flow:
        flow = Flow(body.name, fail_fast=body.fail_fast)
        for one in body.jobs or ():
            after = one.after
            bare = one.model_copy(update={"after": []})
            self.after |= {id for name in after if (id := _id(name)) is not None}
            flow.add(self.job(bare), name=one.name, after=after, when=one.when)
        return flow

    def part(self, body: Part, deep: int) -> Any:
        if not deep:
            raise Invalid(f"chains and groups may be nested {DEEPEST} deep, and no deeper")
        match body:
            case ChainBody():
                return Chain(*(self.part(one, deep - 1) for one in body.chain))
            case GroupBody():
                parts = [self.part(one, deep - 1) for one in body.group]
                return Group(*parts, fail_fast=body.fail_fast)
            case FlowJobBody():
                if body.name is not None:
                    raise Invalid("`name` is for the jobs of a flow that is given as `jobs`")
                return self.job(body)


def _id(name: str) -> str | None:
    try:
        return str(UUID(name))
    except ValueError:
        return None


@lru_cache(1000)
def _unseen(task: str) -> Definition:
    """A task that is defined elsewhere. It takes anything that can be stored. Kept for the next
    job of it: to look at a function takes much longer than to look at what it is given."""

    def anything(**arguments: Any) -> None: ...

    return Definition(name=task, function=anything)


def _request_key(call: Call) -> str | None:
    key = call.request.headers.get(IDEMPOTENCY)
    if key is not None and (not 0 < len(key) <= LONGEST_KEY or not key.isprintable()):
        raise Invalid(f"Idempotency-Key must be 1 to {LONGEST_KEY} printable characters")
    return key


_HEADERS = {
    "Idempotency-Key": "a request that is sent again with the same key makes no more jobs; another"
    " way to give `key` of the body",
    "traceparent": "the trace that the jobs belong to, as W3C writes it",
}

ROUTES = (
    Route(
        "POST", f"{PREFIX}/jobs", Scope.ENQUEUE, enqueue_job, "Enqueue one job",
        request=NewJobBody, response=EnqueuedJob, status=201, statuses=(404, 409), headers=_HEADERS,
    ),
    Route(
        "POST", f"{PREFIX}/jobs/batch", Scope.ENQUEUE, enqueue_jobs,
        "Enqueue many jobs, all or none",
        request=JobsBody, response=Jobs, status=201, statuses=(404, 409), headers=_HEADERS,
    ),
    Route(
        "POST", f"{PREFIX}/flows", Scope.ENQUEUE, enqueue_flow,
        "Enqueue jobs that wait for each other, all or none",
        request=FlowBody, response=NewFlow, status=201, statuses=(404, 409), headers=_HEADERS,
    ),
)  # fmt: skip
