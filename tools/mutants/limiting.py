"""Lanes that run more than they may, or out of order."""

from __future__ import annotations

from .mutation import POSTGRES, SQLITE, Edit, Mutant

LANES = "store/sql/lanes.sql"
RUNS = 4000  # of handlers, until which a campaign has noticed

MUTANTS = [
    Mutant(
        "lanes-without-locks",
        "two claims count a queue and its lanes at once, and both find room",
        [
            Edit(
                LANES,
                "held.got AND pg_try_advisory_xact_lock(\n"
                "        ol.lane_lock(:queue, chosen.lane))",
                "held.got",
            ),
            Edit(LANES, "pg_try_advisory_xact_lock(ol.lane_lock(:queue, ''))\n", "true\n"),
        ],
        campaign="lanes",
        points=RUNS,
        store=POSTGRES,
    ),
    Mutant(
        "lane-without-lock",
        "two claims count a lane at once, where only lanes have limits",
        [
            Edit(
                LANES,
                "held.got AND pg_try_advisory_xact_lock(\n"
                "        ol.lane_lock(:queue, chosen.lane))",
                "held.got",
            )
        ],
        campaign="lanes",
        points=RUNS,
        store=POSTGRES,
    ),
    Mutant(
        "tokens-not-spent",
        "a claim of a lane with a rate spends no token",
        [
            Edit(
                "ops/lanes.py",
                "        if claims:\n            yield last(",
                "        if False:\n            yield last(",
            )
        ],
        paths=("lanes-tokens",),
        points=16,
    ),
    Mutant(
        "tokens-spent-apart",
        "jobs are claimed in one transaction, and their tokens are spent in another",
        [
            Edit(
                "ops/lanes.py",
                "    yield BEGIN\n    answers: list[Rows]",
                "    answers: list[Rows]",
            )
        ],
        paths=("lanes-tokens",),
        points=16,
    ),
    Mutant(
        "tokens-not-returned",
        "a job that is released unspent keeps its token",
        [Edit("ops/lanes.py", "if transition.refund and claim.lane", "if False and claim.lane")],
        paths=("lanes-tokens",),
        points=16,
    ),
    Mutant(
        "first-limit-counts-nothing",
        "what runs when a queue gets its first limit is in no lane",
        [
            Edit(
                "ops/limits.py",
                '    if limited:\n        yield Statement("adopt_running"',
                '    if False:\n        yield Statement("adopt_running"',
            )
        ],
        paths=("lanes-first-limit",),
        points=12,
    ),
    Mutant(
        "queue-without-lock",
        "two claims of different lanes count their queue at once",
        [
            Edit(
                LANES,
                "THEN pg_try_advisory_xact_lock(ol.lane_lock(:queue, ''))\n",
                "THEN pg_try_advisory_xact_lock_shared(ol.lane_lock(:queue, ''))\n",
            )
        ],
        campaign="lanes",
        points=RUNS,
        store=POSTGRES,
    ),
    Mutant(
        "lane-counts-nothing",
        "what runs in a lane is not counted",
        [
            Edit(
                LANES,
                "WHERE r.state = 'running' AND r.lane IS NOT NULL AND r.queue = :queue\n"
                "                AND r.lane = t.lane)",
                "WHERE false)",
            )
        ],
        campaign="lanes",
        points=RUNS,
        store=SQLITE,
    ),
    Mutant(
        "queue-counts-nothing",
        "what runs in the whole queue is not counted",
        [
            Edit(
                LANES,
                "WHERE r.state = 'running' AND r.lane IS NOT NULL AND r.queue = :queue)) END\n",
                "WHERE false)) END\n",
            )
        ],
        campaign="lanes",
        points=RUNS,
        store=SQLITE,
    ),
    Mutant(
        "ordered-without-head",
        "a job that has failed does not hold its ordered lane",
        [
            Edit(
                LANES,
                "b.lane IS NOT NULL AND b.fence > 0\n                AND b.state",
                "false\n                AND b.state",
            )
        ],
        campaign="lanes",
        points=RUNS,
        store=SQLITE,
    ),
]
