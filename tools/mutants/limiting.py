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
