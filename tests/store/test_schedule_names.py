"""Schedules of any name, and of several tenants: each sees its own, and none that looks alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from outlast import InvalidOption, Outlast, ScheduleExists, ScheduleNotFound
from outlast.model.schedule import origin_of_key
from outlast.ops import schedule_pages, schedules
from outlast.ops.access import Access
from outlast.ops.announce import announce
from outlast.ops.fire import fire_due
from tests.store.schedules import declared, past_tick, set_column, set_next
from tests.support import Database

Run = Callable[..., Any]
ODD_NAMES = ["a_c", "100%", "it's", 'say "no"', "back\\slash", "café ☕", "wow!", "x" * 200, "a:b"]


@pytest.mark.parametrize("name", ODD_NAMES)
def test_a_schedule_of_any_name_shows_what_was_done_to_it_and_fires(
    run: Run, app: Outlast, database: Database, name: str
) -> None:
    """R234: a name is no pattern."""
    task = declared(app, every="1h")
    for one in (name, "abc", "100 per cent"):
        app.create_schedule(one, task.job(), every="1h")
    app.pause_schedule("abc")
    app.skip_schedule(name)
    assert [one["action"] for one in app.schedule_report(name).actions] == ["skip", "create"]
    set_next(database, name, past_tick(3600.0, 0))
    assert run(fire_due, ["report"]).fired == 1
    [job] = app.jobs()
    origin = origin_of_key(job.key)
    assert origin is not None and (origin.schedule, origin.manual) == (name, False)


VERBS: dict[str, Callable[[str, Access], Any]] = {
    "report": lambda name, reach: (schedules.report, name, reach),
    "pause": lambda name, reach: (schedules.pause, name, "x", "", reach),
    "resume": lambda name, reach: (schedules.resume, name, "x", reach),
    "run_now": lambda name, reach: (schedules.run_now, name, "x", "0" * 36, reach),
    "skip": lambda name, reach: (schedules.skip, name, 1, "x", "", reach),
    "change": lambda name, reach: (schedules.change, name, {"every": 60}, None, "x", reach),
    "reset": lambda name, reach: (schedules.reset, name, "x", reach),
    "backfill": lambda name, reach: (schedules.backfill, name, 0.0, 1.0, "x", reach),
    "delete": lambda name, reach: (schedules.delete, name, "x", "", reach),
}


@pytest.mark.parametrize("verb", VERBS)
def test_no_verb_reaches_another_tenants_schedule(run: Run, app: Outlast, verb: str) -> None:
    """R234: nor says that it exists."""
    task = declared(app)
    app.create_schedule("theirs", task.using(tenant="globex").job(), every="1h")
    [before] = app.schedules()
    acme = Access.of("acme", None)
    operation, *given = VERBS[verb]("theirs", acme)
    with pytest.raises(ScheduleNotFound):
        run(operation, *given)
    assert run(schedule_pages.schedules, acme) == []
    assert app.schedules() == [before]
    assert app.jobs() == []


def test_a_name_that_is_used_again_does_not_show_what_others_did(run: Run, app: Outlast) -> None:
    """R234: another tenant had a schedule of this name, and a reason to pause it."""
    task = declared(app)
    app.create_schedule("nightly", task.using(tenant="globex").job(), every="1h")
    app.pause_schedule("nightly", reason="our secret merger")
    app.delete_schedule("nightly")
    app.create_schedule("nightly", task.using(tenant="acme").job(), every="1h")
    with pytest.raises(ScheduleExists):
        app.create_schedule("nightly", task.using(tenant="globex").job(), every="1h")
    shown = run(schedules.report, "nightly", Access.of("acme", None))
    assert [one["action"] for one in shown.actions] == ["create"]
    assert len(app.schedule_report("nightly").actions) == 4  # the operator of all sees all


def test_a_schedule_whose_zone_is_gone_is_shown_and_says_so_when_resumed(
    run: Run, app: Outlast, database: Database
) -> None:
    """R155: in words, not as an internal error."""
    declared(app, cron="0 3 * * *")
    run(announce, list(app.registry.schedules.values()))
    set_column(database, "report", "spec", '{"cron": "0 3 * * *", "tz": "Europe/Atlantis"}')
    assert app.schedule_report("report").next_runs == []
    app.pause_schedule("report")
    with pytest.raises(InvalidOption, match="Europe/Atlantis"):
        app.resume_schedule("report")
    assert app.change_schedule("report", tz="Europe/Berlin").error is None
