"""Migrations: all tables, or none."""

from __future__ import annotations

from collections.abc import Iterator

from ...client.client import Outlast
from ...model.errors import StoreError
from ...model.lifecycle import Outcome
from ..scenario_context import ScenarioContext
from ..workload import Workload
from ..workspace import Workspace
from .scenario import scenario


def _fresh(ctx: ScenarioContext, workspace: Workspace) -> Outlast:
    return Outlast(workspace.url, schema=workspace.schema, settings=ctx.ol.store.settings)


@scenario("start")
def start(ctx: ScenarioContext) -> Iterator[None]:
    """A process's first query: whether the tables exist, and their version."""
    ol = _fresh(ctx, ctx.workspace)
    yield
    ol.store.ready()


@scenario("migrate", max_points=16)
def migrate(ctx: ScenarioContext) -> Iterator[None]:
    workspace = ctx.workspace.sibling(ctx.queue)
    ol = _fresh(ctx, workspace)
    yield
    ol.migrate()


@migrate.on_retry
def migrate_again(ctx: ScenarioContext) -> Iterator[str]:
    """An interrupted migration left nothing, or everything; the next one works in both cases."""
    fresh = ScenarioContext(Workload(ctx.workspace.sibling(ctx.queue)), ctx.queue, ctx.lease)
    try:
        fresh.ol.migrate()
    except StoreError as error:
        yield f"an interrupted migration cannot be repeated: {error}"
        return
    if fresh.ol.migrate() != []:
        yield "a second migration found something to do"
    (claim,) = fresh.enqueue_and_claim()
    finished = fresh.finish([(claim, fresh.attempt_end(Outcome.SUCCEEDED, claim))])
    if len(finished.accepted) != 1 or fresh.ol.counts()["succeeded"] != 1:
        yield "a job in the migrated tables could not be finished"
    fresh.ol.close()
