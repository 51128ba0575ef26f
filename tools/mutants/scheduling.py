"""Schedules: ticks that fire twice, never, or although they must not."""

from __future__ import annotations

from .mutation import POSTGRES, Edit, Mutant

FIRE = ("schedule-fire",)
ADVANCE_GUARD = (
    "WHERE j.name = t.name AND j.next_at = ol.moment(t.seen) AND j.version = t.version\n"
    "    AND j.paused_at IS NULL\n"
)

MUTANTS = [
    Mutant(
        "schedule-fires-apart",
        "a schedule moves on in one transaction, and its jobs come in another",
        [Edit("ops/fire.py", '    yield BEGIN\n    given = {"tasks"', '    given = {"tasks"')],
        paths=FIRE,
        points=24,
    ),
    Mutant(
        "schedule-fires-apart-postgres",
        "a schedule moves on in one transaction, and its jobs come in another",
        [Edit("ops/fire.py", '    yield BEGIN\n    given = {"tasks"', '    given = {"tasks"')],
        paths=FIRE,
        points=24,
        store=POSTGRES,
    ),
    Mutant(
        "schedule-key-without-tick",
        "the key of a tick's job does not say which tick",
        [
            Edit(
                "model/schedule.py", 'return f"cron:{name}:{as_key(tick)}"', 'return f"cron:{name}"'
            )
        ],
        paths=FIRE,
        points=8,
    ),
    Mutant(
        "schedule-fires-unseen",
        "a worker fires a schedule that has moved on since it was read",
        [Edit("store/sql/schedules.sql", ADVANCE_GUARD, "WHERE j.name = t.name\n")],
        paths=("schedule-fired-between",),
        points=8,
    ),
    Mutant(
        "schedule-fires-paused",
        "a worker fires a schedule that was paused since it was read",
        [
            Edit(
                "store/sql/schedules.sql",
                ADVANCE_GUARD,
                "WHERE j.name = t.name AND j.next_at = ol.moment(t.seen)\n",
            )
        ],
        paths=("schedule-paused-between",),
        points=8,
    ),
    Mutant(
        "schedule-pause-keeps-version",
        "a pause is no change of a schedule, and firing does not ask for it",
        [
            Edit(
                "store/sql/schedules.sql",
                ADVANCE_GUARD,
                ADVANCE_GUARD.replace("    AND j.paused_at IS NULL\n", ""),
            ),
            Edit(
                "store/sql/schedules.sql",
                "pause_reason = :reason,\n    version = version + 1,",
                "pause_reason = :reason,",
            ),
        ],
        paths=("schedule-paused-between",),
        points=8,
    ),
]
