"""Fences and leases that do not hold."""

from __future__ import annotations

from ..mutation import POSTGRES, SQLITE, Edit, Mutant

FINISH, RENEW, OPERATE = "store/sql/finish.sql", "store/sql/renew.sql", "store/sql/operate.sql"
ENDS = ("finish-succeeded", "finish-failed")
HOLDS = ("renew", "report")

GUARD = (
    "WHERE j.id = t.id AND j.fence = t.fence AND ol.same_owner AND j.state || '' = 'running'\n"
    "RETURNING CAST"
)
SUCCEEDS = "WHERE j.id = t.id AND j.fence = t.fence AND j.worker = :owner\n"
SUCCEED_WITHOUT_FENCE = Edit(FINISH, SUCCEEDS, SUCCEEDS.replace(" AND j.fence = t.fence", ""))
WITHOUT_FENCE = Edit(FINISH, GUARD, GUARD.replace(" AND j.fence = t.fence", ""))
WITHOUT_STATE = Edit(FINISH, GUARD, GUARD.replace(" AND j.state || '' = 'running'", ""))
OWNER = "j.fence = t.fence AND j.worker = :worker AND"
RENEW_WITHOUT_OWNER = Edit(
    RENEW, f"WHERE j.id = t.id AND {OWNER}", "WHERE j.id = t.id AND :worker <> '' AND"
)
RENEW_WITHOUT_OWNER_POSTGRES = Edit(RENEW, f"    WHERE {OWNER}", "    WHERE :worker <> '' AND")
EVENTS = "WHERE j.fence = t.fence AND ol.same_owner AND j.state || '' = 'running'\nORDER BY t.n"
EVENTS_WITHOUT_FENCE = Edit(OPERATE, EVENTS, EVENTS.replace("j.fence = t.fence AND ", ""))
WORKERS_CLOCK = [
    Edit("ops/claim.py", "import json\n", "import json\nimport time\n"),
    Edit("ops/claim.py", '"lease": self.lease,', '"lease": time.time() + self.lease,'),
    Edit(
        "store/sql/claim.sql",
        "    lease_until = ol.later(:lease), started_at = ol.now()\n",
        "    lease_until = :lease, started_at = ol.now()\n",
    ),
]

MUTANTS = [
    Mutant(
        "finish-without-fence",
        "a finish is guarded by its job's id alone",
        [WITHOUT_FENCE],
        campaign="zombie",
        paths=ENDS,
        points=8,
        store=SQLITE,
    ),
    Mutant(
        "finish-without-fence-postgres",
        "a finish is guarded by its job's id alone",
        [WITHOUT_FENCE],
        campaign="zombie",
        paths=ENDS,
        points=8,
        store=POSTGRES,
    ),
    Mutant(
        "succeed-without-fence",
        "first-try successes are guarded by their jobs' ids alone",
        [SUCCEED_WITHOUT_FENCE],
        campaign="zombie",
        paths=("turn",),
        points=8,
        store=SQLITE,
    ),
    Mutant(
        "succeed-without-fence-postgres",
        "first-try successes are guarded by their jobs' ids alone",
        [SUCCEED_WITHOUT_FENCE],
        campaign="zombie",
        paths=("turn",),
        points=8,
        store=POSTGRES,
    ),
    Mutant(
        "finish-without-state",
        "a finish does not ask whether its job is still running",
        [WITHOUT_STATE],
        campaign="zombie",
        paths=("finish-succeeded", "release"),
        points=8,
        store=SQLITE,
    ),
    Mutant(
        "finish-without-state-postgres",
        "a finish does not ask whether its job is still running",
        [WITHOUT_STATE],
        campaign="zombie",
        paths=("finish-succeeded", "release"),
        points=8,
        store=POSTGRES,
    ),
    Mutant(
        "renew-without-owner",
        "a renewal is guarded by its job's id alone",
        [RENEW_WITHOUT_OWNER],
        campaign="zombie",
        paths=HOLDS,
        points=8,
        store=SQLITE,
    ),
    Mutant(
        "renew-without-owner-postgres",
        "a renewal is guarded by its job's id alone",
        [RENEW_WITHOUT_OWNER_POSTGRES],
        campaign="zombie",
        paths=HOLDS,
        points=8,
        store=POSTGRES,
    ),
    Mutant(
        "events-without-fence",
        "progress and logs of a lost claim are kept",
        [EVENTS_WITHOUT_FENCE],
        campaign="zombie",
        paths=HOLDS,
        points=8,
        store=SQLITE,
    ),
    Mutant(
        "events-without-fence-postgres",
        "progress and logs of a lost claim are kept",
        [EVENTS_WITHOUT_FENCE],
        campaign="zombie",
        paths=HOLDS,
        points=8,
        store=POSTGRES,
    ),
    Mutant(
        "lease-by-workers-clock",
        "a claim's lease is reckoned by the clock of whoever claims",
        WORKERS_CLOCK,
        paths=("wrong-clock",),
        points=8,
        store=SQLITE,
    ),
    Mutant(
        "renewal-by-workers-clock",
        "a renewal is reckoned by the clock of whoever renews",
        [
            Edit("ops/renew.py", "from collections", "import time\nfrom collections"),
            Edit("ops/renew.py", '"lease": lease}', '"lease": time.time() + lease}'),
            Edit(
                RENEW,
                "UPDATE ol.job AS j SET lease_until = ol.later(:lease)\nFROM ol.rows",
                "UPDATE ol.job AS j SET lease_until = :lease\nFROM ol.rows",
            ),
        ],
        paths=("wrong-clock",),
        points=12,
        store=SQLITE,
    ),
]  # fmt: skip
