"""Schedules: ticks that fire twice, never, or although they must not."""

from __future__ import annotations

from .mutation import POSTGRES, Edit, Mutant

FIRE = ("schedule-fire",)
FIRING, SCHEDULES = "model/firing.py", "store/sql/schedules.sql"
TICKS, MANY_TICKS = 400, 10_000  # until which a campaign has noticed; the latter: all of its time
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
    Mutant(
        "schedule-fires-without-advancing",
        "a schedule makes jobs, and stays due for the same tick",
        [Edit(SCHEDULES, "SET next_at = ol.moment(t.following)", "SET next_at = j.next_at")],
        campaign="schedules",
        points=TICKS,
    ),
    Mutant(
        "schedule-advances-without-jobs",
        "a schedule moves on, and its ticks have no jobs",
        [Edit("ops/fire.py", "    if plain:\n", "    if False:\n")],
        campaign="schedules",
        points=TICKS,
    ),
    Mutant(
        "schedule-tick-not-unique",
        "nothing in the tables keeps a tick from having two jobs",
        [
            Edit(
                "store/migrations/0001.sqlite.sql",
                "CREATE UNIQUE INDEX ol.index(job_key)",
                "CREATE INDEX ol.index(job_key)",
            )
        ],
        campaign="schedules",
        points=TICKS,
    ),
    Mutant(
        "schedule-tick-not-unique-postgres",
        "nothing in the tables keeps a tick from having two jobs",
        [
            Edit(
                "store/migrations/0001.postgres.sql",
                "CREATE UNIQUE INDEX job_key",
                "CREATE INDEX job_key",
            )
        ],
        campaign="schedules",
        points=TICKS,
        store=POSTGRES,
    ),
    Mutant(
        "schedule-all-means-once",
        "of several missed ticks the latest fires, where all of them are to",
        [
            Edit(
                FIRING,
                'if spec.missed == "all":\n        return DueTicks',
                "if False:\n        return DueTicks",
            )
        ],
        paths=("schedule-fire",),
        points=12,
    ),
    Mutant(
        "schedule-none-means-once",
        "a tick fires however late it is, where late ones are to be left out",
        [Edit(FIRING, 'if spec.missed == "none" and now', "if False and now")],
        paths=("schedule-left-out",),
        points=12,
    ),
    Mutant(
        "schedule-overlaps",
        "a tick fires although the earlier run goes on",
        [Edit(FIRING, 'elif not earlier or spec.overlap == "allow":', "elif True:")],
        campaign="schedules",
        points=TICKS,
    ),
    Mutant(
        "schedule-queues-many",
        "more than one run waits for the end of an earlier one",
        [
            Edit(
                FIRING,
                'spec.overlap == "queue" and all(run.started for run in earlier)',
                'spec.overlap == "queue" and not firing.jobs',
            )
        ],
        campaign="schedules",
        points=TICKS,
    ),
    Mutant(
        "schedule-cancels-nothing",
        "a new run starts beside the old one, which was to be cancelled",
        [Edit(FIRING, "firing.cancel = tuple(run.id for run in active)", "firing.cancel = ()")],
        campaign="schedules",
        points=TICKS,
    ),
    Mutant(
        "schedule-fires-in-its-pause",
        "a schedule that is paused fires",
        [
            Edit(
                SCHEDULES,
                "-- sqlite: one writer at a time\n"
                "SELECT ol.schedule_columns FROM ol.schedule AS j\n"
                "WHERE j.paused_at IS NULL AND j.error IS NULL AND j.next_at",
                "-- sqlite: one writer at a time\n"
                "SELECT ol.schedule_columns FROM ol.schedule AS j\n"
                "WHERE j.error IS NULL AND j.next_at",
            ),
            Edit(
                SCHEDULES, ADVANCE_GUARD, ADVANCE_GUARD.replace("    AND j.paused_at IS NULL\n", "")
            ),
        ],
        campaign="schedules",
        points=TICKS,
    ),
    Mutant(
        "schedule-resumes-with-its-pause",
        "a schedule that is resumed fires the ticks of its pause",
        [
            Edit(
                SCHEDULES,
                "next_at = ol.moment(CAST(:next AS double precision)),"
                " fired_ticks = ol.json(:fired_ticks),\n    version",
                "next_at = CASE WHEN true THEN next_at"
                " ELSE ol.moment(CAST(:next AS double precision)) END,"
                " fired_ticks = ol.json(:fired_ticks),\n    version",
            )
        ],
        paths=("schedule-resumed",),
        points=12,
    ),
    Mutant(
        "schedule-never-set-back",
        "after the clock was ahead, a schedule waits until it gets there again",
        [Edit("worker/schedules.py", "if self._clock_was_ahead:\n", "if False:\n")],
        campaign="schedules",
        points=MANY_TICKS,
    ),
]
