"""The tables come to be, whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator

from ...client import Outlast
from ...model.errors import StoreError
from ...model.lifecycle import Outcome
from ..place import Place
from ..stage import Stage
from ..workload import Workload
from .path import path


def _fresh(stage: Stage, place: Place) -> Outlast:
    return Outlast(place.url, schema=place.schema, settings=stage.ol.store.settings)


@path("start")
def start(stage: Stage) -> Iterator[None]:
    """The first thing that a process does: are the tables there, and of which version?"""
    ol = _fresh(stage, stage.place)
    yield
    ol.store.ready()


@path("migrate", most=16)
def migrate(stage: Stage) -> Iterator[None]:
    place = stage.place.beside(stage.queue)
    ol = _fresh(stage, place)
    yield
    ol.migrate()


@migrate.again
def migrate_again(stage: Stage) -> Iterator[str]:
    """One that died midway left nothing behind, or everything; either way the next one works."""
    fresh = Stage(Workload(stage.place.beside(stage.queue)), stage.queue, stage.lease)
    try:
        fresh.ol.migrate()
    except StoreError as error:
        yield f"a migration that died midway cannot be done again: {error}"
        return
    if fresh.ol.migrate() != []:
        yield "a second migration found something to do"
    (claim,) = fresh.claimed()
    finished = fresh.finish([(claim, fresh.ended(Outcome.SUCCEEDED, claim))])
    if len(finished.accepted) != 1 or fresh.ol.counts()["succeeded"] != 1:
        yield "a job in the migrated tables could not be finished"
    fresh.ol.close()
