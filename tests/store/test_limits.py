"""Limits are declared in code, changed at run time, and every change is on record."""

from __future__ import annotations

import pytest

from outlast import InvalidOption, Outlast
from outlast.ops.limits import declare
from tests.store.jobs import table
from tests.support import Database


def test_the_code_declares_limits_at_the_first_enqueue(app: Outlast) -> None:
    @app.task(queue="mail")
    def send() -> None: ...

    app.queue("mail", running=50, lane="tenant", lane_running=3, weights={"gold": 4})
    send.enqueue()
    (mail,) = app.limits()
    assert (mail.queue, mail.limits.running, mail.limits.lane_running) == ("mail", 50, 3)
    assert mail.limits == mail.declared == app.declared_queues["mail"]


def test_a_change_at_run_time_outlives_the_next_deployment(database: Database) -> None:
    """R238: changed at run time, on record."""
    with Outlast(database.url, schema=database.schema) as old:
        old.queue("mail", running=50, lane_running=3)
        old.store.run(declare, list(old.declared_queues.values()), "deploy")
        assert old.limit("mail", running=20).limits.running == 20
    with Outlast(database.url, schema=database.schema) as new:
        new.queue("mail", running=60, lane_running=5)
        new.store.run(declare, list(new.declared_queues.values()), "deploy")
        (mail,) = new.limits()
        assert (mail.limits.running, mail.limits.lane_running) == (20, 5)
        assert mail.overrides == {"running": 20}
        assert new.limit("mail", reset=True).limits == new.declared_queues["mail"]


def test_a_change_that_changes_nothing_is_not_recorded(app: Outlast, database: Database) -> None:
    app.migrate()
    for _ in range(2):
        app.limit("mail", running=20)
    app.limit("mail", running=None)
    rows = database.rows(f"SELECT kind FROM {table(database, 'event')} ORDER BY seq")
    assert rows == [("limits",), ("limits",)]


async def test_every_verb_has_an_async_twin(app: Outlast) -> None:
    await app.amigrate()
    changed = await app.alimit("mail", lane_rate="60/m")
    assert changed.limits.lane_rate == 1.0
    assert [one.queue for one in await app.alimits()] == ["mail"]
    await app.aclose()


def test_a_refused_change_stores_nothing(app: Outlast) -> None:
    app.migrate()
    with pytest.raises(InvalidOption, match="burst"):
        app.limit("mail", burst=5)
    assert app.limits() == []


def test_two_declarations_of_one_queue_must_agree(app: Outlast) -> None:
    app.queue("mail", running=5)
    app.queue("mail", running=5)
    with pytest.raises(InvalidOption, match="declared twice"):
        app.queue("mail", running=6)
