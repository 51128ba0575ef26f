"""The page of outboxes and sources: their brokers, waiting and failed messages, and pausing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from pydantic import Field
from starlette.responses import Response

from ...model.api_token import Scope
from ...model.lifecycle import State
from ...ops.bridges import OUTBOX, SOURCE, BridgeState, bridges
from ..api.queues import list_queues, pause_queue, require_queue, resume_queue
from ..api.request_models import QueueBody, RequestModel
from ..problems import NotFound
from ..request import RequestContext
from .confirm import Confirmation, confirmation_page, redirect_done, submitted_form
from .pages import action_route, page_route, render_page

SILENT_AFTER_S = 60.0  # without a report for so long, a source counts as not running
WAITING = (State.READY, State.SCHEDULED, State.WAITING)


class BridgeQuery(RequestModel):
    kind: Literal["outbox", "source"]
    name: Annotated[str, Field(min_length=1, max_length=200)]


@dataclass(frozen=True, slots=True)
class BridgeRow:
    """An outbox or a source, with the jobs of its queues."""

    bridge: BridgeState
    paused: bool
    breakers: list[Mapping[str, Any]]
    counts: dict[str, int]  # waiting, running, dead
    oldest: float | None  # seconds the oldest ready job has existed

    @property
    def state(self) -> str:
        """The state in a word, by severity."""
        if self.breakers:
            return "down"
        if self.paused:
            return "paused"
        if self.bridge.kind == SOURCE and self.bridge.error:
            return "failing"
        silent = self.bridge.silent_for > SILENT_AFTER_S
        return "silent" if self.bridge.kind == SOURCE and silent else "working"


async def bridges_page(call: RequestContext) -> Response:
    found = await call.ol.store.arun(bridges)
    listed = await list_queues(call)
    queues = {queue["name"]: queue for queue in listed["queues"]}
    rows = [
        bridge_row(one, [queues[name] for name in one.queues if name in queues])
        for one in found
        if _can_access(call, one)
    ]
    return await render_page(
        call,
        "bridges.html",
        outboxes=[row for row in rows if row.bridge.kind == OUTBOX],
        sources=[row for row in rows if row.bridge.kind == SOURCE],
        age=listed["age"],
    )


def bridge_row(bridge: BridgeState, queues: Sequence[Mapping[str, Any]]) -> BridgeRow:
    """Pure: a bridge with the sums of its queues."""

    def total(states: Sequence[str]) -> int:
        return sum(queue["counts"].get(state, 0) for queue in queues for state in states)

    ages = [queue["oldest"] for queue in queues if queue["oldest"] is not None]
    return BridgeRow(
        bridge,
        paused=any(queue["paused"] for queue in queues),
        breakers=[one for queue in queues for one in queue["breakers"]],
        counts={
            "waiting": total(WAITING),
            "running": total([State.RUNNING]),
            "dead": total([State.DEAD]),
        },
        oldest=max(ages, default=None),
    )


async def ask_pause_bridge(call: RequestContext) -> Response:
    one = await _named(call, call.query)
    consequence = (
        "No message is sent until it is resumed. Messages can still be published; they wait."
        if one.kind == OUTBOX
        else "No worker will claim the jobs of its messages, or other jobs of that queue. Messages"
        " are still received and stored, up to the limit of the queue."
    )
    return await confirmation_page(call, _confirmation(one, "pause", consequence))


async def ask_resume_bridge(call: RequestContext) -> Response:
    one = await _named(call, call.query)
    consequence = "Workers will claim the jobs of " + " and ".join(one.queues) + " again."
    return await confirmation_page(call, _confirmation(one, "resume", consequence))


async def do_pause_bridge(call: RequestContext) -> Response:
    one = await _named(call, await submitted_form(call, BridgeQuery))
    for queue in one.queues:
        await pause_queue(replace(call, body=QueueBody(queue=queue)))
    return await redirect_done(call, f"The {one.kind} {one.name} is paused.", "/bridges")


async def do_resume_bridge(call: RequestContext) -> Response:
    one = await _named(call, await submitted_form(call, BridgeQuery))
    for queue in one.queues:
        await resume_queue(replace(call, body=QueueBody(queue=queue)))
    return await redirect_done(call, f"The {one.kind} {one.name} is resumed.", "/bridges")


async def _named(call: RequestContext, query: BridgeQuery) -> BridgeState:
    """The bridge of this name, if the caller has access to all its queues."""
    for one in await call.ol.store.arun(bridges, query.kind):
        if one.name == query.name:
            for queue in one.queues:
                require_queue(call, queue)
            return one
    raise NotFound(f"no worker has announced the {query.kind} {query.name!r}")


def _can_access(call: RequestContext, one: BridgeState) -> bool:
    return all(call.who.can_access(queue) for queue in one.queues)


def _confirmation(one: BridgeState, verb: str, consequence: str) -> Confirmation:
    return Confirmation(
        title=f"{verb.capitalize()} the {one.kind} {one.name}?",
        consequence=consequence,
        button=f"{verb.capitalize()} it",
        path=f"/bridges/{verb}",
        back="/bridges",
        fields={"kind": one.kind, "name": one.name},
    )


ROUTES = (
    page_route("/bridges", bridges_page, "Outboxes and sources", everyone=True),
    page_route(
        "/bridges/pause", ask_pause_bridge, "Pause an outbox or a source?",
        query=BridgeQuery, everyone=True, scope=Scope.ADMIN,
    ),
    page_route(
        "/bridges/resume", ask_resume_bridge, "Resume an outbox or a source?",
        query=BridgeQuery, everyone=True, scope=Scope.ADMIN,
    ),
    action_route("/bridges/pause", do_pause_bridge, "Pause an outbox or a source", everyone=True),
    action_route(
        "/bridges/resume", do_resume_bridge, "Resume an outbox or a source", everyone=True
    ),
)  # fmt: skip
