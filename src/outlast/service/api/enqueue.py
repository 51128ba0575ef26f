"""Enqueueing: one job, many, and flows. Arguments are JSON; the tenant is the token's."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from uuid import UUID

from ...model.api_token import Scope
from ...model.errors import FlowNotFound, KeyConflict
from ...model.flow import Chain, Enqueueable, Flow, Group
from ...model.flow_builder import build_jobs
from ...model.job import Job, NewJob
from ...model.options import Options
from ...model.task import DEFAULT_QUEUE, TaskDefinition
from ...model.task import Call as TaskCall
from ...ops.access import ALL_JOBS
from ...ops.search import all_in_reach, flow_in_reach
from ...tracing import continue_trace
from ..offload import in_thread_if_large
from ..problems import Conflict, Forbidden, UnprocessableBody
from ..request import RequestContext
from ..route import Route
from ..tenant_lanes import refuse_foreign_lanes
from . import PREFIX
from .params import IDEMPOTENCY_HEADER, bounded, merged_key, request_key
from .request_models import ChainBody, FlowBody, FlowJobBody, GroupBody, JobsBody, NewJobBody, Part
from .response_models import EnqueuedFlow, EnqueuedJob, Jobs

if TYPE_CHECKING:
    from ...webhooks.webhook import Webhook

MAX_FLOW_DEPTH = 20  # nested chains and groups


async def enqueue_job(call: RequestContext) -> dict[str, object]:
    (job,) = await _enqueue(call, lambda made: [made.job(call.body)])
    return _enqueued_job(call, job)


async def enqueue_jobs(call: RequestContext) -> dict[str, object]:
    body: JobsBody = call.body
    if IDEMPOTENCY_HEADER in call.request.headers and all(job.key is not None for job in body.jobs):
        raise UnprocessableBody(
            "Idempotency-Key is for jobs without a `key` of their own, and all jobs of this batch"
            " have one: leave out the header"
        )
    jobs = await _enqueue(call, lambda made: [made.job(one) for one in body.jobs])
    return {"jobs": [_enqueued_job(call, job) for job in jobs]}


async def enqueue_flow(call: RequestContext) -> dict[str, object]:
    body: FlowBody = call.body
    if (body.jobs is None) == (body.flow is None):
        raise UnprocessableBody("send either `jobs`, or a `flow` of chains and groups")
    jobs = await _enqueue(call, lambda made: [made.flow(body)])
    return {"flow": jobs[0].flow, "jobs": [_enqueued_job(call, job) for job in jobs]}


def _enqueued_job(call: RequestContext, job: Job) -> dict[str, object]:
    """The response for a job. A job of the same key may have existed before, with a result, an
    error and a worker, which need the scope `read`."""
    return job.as_json() if call.who.has_scope(Scope.READ) else {"id": job.id, "state": job.state}


async def _enqueue(
    call: RequestContext, build: Callable[[_CallBuilder], Sequence[Enqueueable]]
) -> list[Job]:
    builder = _CallBuilder(call)
    jobs = await in_thread_if_large(call.size, lambda: builder.all_of(build(builder)))
    if builder.after and call.reach != ALL_JOBS:
        await call.ol.store.arun(all_in_reach, builder.after, call.reach)
    await refuse_foreign_lanes(call.ol.store, call.who.tenant, builder.lanes)
    await call.service.queue_names.admit(jobs)
    await call.service.queue_bounds.refresh()
    continue_trace(call.request.headers.get("traceparent"))  # each request has its own context
    try:
        return await call.ol._aenqueue_jobs(jobs)
    except KeyConflict as conflict:
        await _hide_inaccessible_flow(call, conflict)
        raise


async def _hide_inaccessible_flow(call: RequestContext, conflict: KeyConflict) -> None:
    """Report a key conflict without details if the token has no access to the other flow: flow keys
    are shared by all queues of a tenant."""
    flow = conflict.facts.get("flow")
    if flow is None or call.reach == ALL_JOBS:
        return
    try:
        await call.ol.store.arun(flow_in_reach, flow, call.reach)
    except FlowNotFound:
        raise KeyConflictProblem(
            "this key already belongs to another flow: use another key"
        ) from None


def task_call(call: RequestContext, body: NewJobBody) -> TaskCall:
    """The call of one job that is enqueued later, such as a schedule's."""
    return _CallBuilder(call).job(body)


class KeyConflictProblem(Conflict):
    kind = "key-conflict"


class _CallBuilder:
    """Builds and counts the task calls of a request; `after` has the existing prerequisites."""

    def __init__(self, call: RequestContext) -> None:
        self._call = call
        self._request_key = request_key(call.request)
        self._number_keys = True
        self.count = 0
        self.after: set[str] = set()
        self.lanes: set[tuple[str, str]] = set()  # queue and lane, where the request names one

    def all_of(self, plan: Sequence[Enqueueable]) -> list[NewJob]:
        bounded(self.count, self._call.service.settings.max_jobs, "jobs")
        return build_jobs(plan, limit=self._call.ol.max_args_bytes)

    def job(self, body: NewJobBody) -> TaskCall:
        definition = self._call.ol.registry.get(body.task)
        arguments = body.args
        if definition is None:
            definition = _untyped_definition(body.task, self._call.ol.tenant_required)
        else:  # decode by the annotations: JSON has no dates
            arguments = definition.arguments.decode(json.dumps(body.args))
        options = self._options(body)
        queue = options.queue or definition.options.queue or DEFAULT_QUEUE
        if not self._call.who.can_access(queue):
            raise Forbidden(f"this token has no access to the queue {queue!r}")
        if body.lane is not None:
            self.lanes.add((queue, body.lane))
        self.count += 1
        return TaskCall(definition, options, (), arguments)

    def _options(self, body: NewJobBody) -> Options:
        options = body.model_dump(exclude={"task", "args", "name"}, exclude_none=True)
        options["after"] = body.after or None
        options["tell"] = [self._webhook(name) for name in body.tell] or None
        if self._number_keys:
            options["key"] = self._job_key(body.key)
        self.after |= {id for one in body.after if (id := _id(one)) is not None}
        return Options(tenant=self._call.who.tenant, **options)

    def _webhook(self, name: str) -> Webhook:
        """A webhook of the app, by name. Webhooks of other tenants are not found."""
        found, who = self._call.ol.webhooks.get(name), self._call.who
        if found is None or (found.tenant and who.tenant not in (None, found.tenant)):
            raise UnprocessableBody(f"the app of this service defines no webhook {name!r}")
        if not who.can_access(found.queue):
            raise Forbidden(f"this token has no access to the queue {found.queue!r}")
        return found

    def _job_key(self, own: str | None) -> str | None:
        """The key by which a repeated request finds its job. The header is the key of a single job;
        in a batch, jobs without a key get the header's key and a number."""
        if not isinstance(self._call.body, JobsBody):
            return self._merged_key(own)
        if own is None and self._request_key is not None:
            return f"{self._request_key}[{self.count}]"
        return own

    def _merged_key(self, own: str | None) -> str | None:
        """The key from the header, the body, or both if they are equal."""
        return merged_key(self._request_key, own)

    def flow(self, body: FlowBody) -> Flow | Chain | Group:
        self._number_keys = False  # the key belongs to the whole flow
        plan = self.graph(body) if body.flow is None else self.part(body.flow, MAX_FLOW_DEPTH)
        if not self.count:
            raise UnprocessableBody("a flow must have at least one job")
        key = self._merged_key(body.key)
        return plan if key is None else plan.using(key=key)

    def graph(self, body: FlowBody) -> Flow:
        flow = Flow(body.name, fail_fast=body.fail_fast)
        for one in body.jobs or ():
            after = one.after
            bare = one.model_copy(update={"after": []})
            self.after |= {id for name in after if (id := _id(name)) is not None}
            flow.add(self.job(bare), name=one.name, after=after, when=one.when)
        return flow

    def part(self, body: Part, depth: int) -> Any:
        if not depth:
            raise UnprocessableBody(
                f"chains and groups may be nested at most {MAX_FLOW_DEPTH} deep"
            )
        match body:
            case ChainBody():
                return Chain(*(self.part(one, depth - 1) for one in body.chain))
            case GroupBody():
                parts = [self.part(one, depth - 1) for one in body.group]
                return Group(*parts, fail_fast=body.fail_fast)
            case FlowJobBody():
                if body.name is not None:
                    raise UnprocessableBody("`name` is only allowed for jobs in `jobs`")
                return self.job(body)


def _id(name: str) -> str | None:
    try:
        return str(UUID(name))
    except ValueError:
        return None


@lru_cache(1000)
def _untyped_definition(task: str, tenant_required: bool) -> TaskDefinition:
    """A task that is defined elsewhere; it accepts any arguments that can be stored. Cached, since
    inspecting a function takes much longer than checking arguments."""

    def handler(**arguments: object) -> None: ...

    return TaskDefinition(name=task, function=handler, tenant_required=tenant_required)


_HEADERS = {
    "Idempotency-Key": "a repeated request with the same key creates no more jobs; an alternative"
    " to `key` in the body",
    "traceparent": "the trace of the jobs, in W3C format",
}

ROUTES = (
    Route(
        "POST", f"{PREFIX}/jobs", Scope.ENQUEUE, enqueue_job, "Enqueue one job",
        request=NewJobBody, response=EnqueuedJob, status=201, statuses=(404, 409), headers=_HEADERS,
    ),
    Route(
        "POST", f"{PREFIX}/jobs/batch", Scope.ENQUEUE, enqueue_jobs,
        "Enqueue many jobs atomically",
        request=JobsBody, response=Jobs, status=201, statuses=(404, 409), headers=_HEADERS,
    ),
    Route(
        "POST", f"{PREFIX}/flows", Scope.ENQUEUE, enqueue_flow,
        "Enqueue a flow of jobs atomically",
        request=FlowBody, response=EnqueuedFlow, status=201, statuses=(404, 409), headers=_HEADERS,
    ),
)  # fmt: skip
