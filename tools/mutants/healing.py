"""Nets that do not catch, or catch the living."""

from __future__ import annotations

from .mutation import POSTGRES, SQLITE, Edit, Mutant
from .owning import WITHOUT_STATE

HEAL, RECLAIM, OUTCOME = "worker/maintenance.py", "ops/reclaim.py", "model/outcome.py"
FINISH, RENEW, DUTIES = "store/sql/finish.sql", "store/sql/renew.sql", "store/sql/duties.sql"
BACK = "t.state IN ('ready', 'scheduled', 'waiting')"
CRASHED = "return Transition(claim, Outcome.CRASHED, to, error=error, crashes=1)"

LOOKS_FIRST = Edit(
    RECLAIM,
    '    yield BEGIN\n    rows: Rows = yield Statement("expired_leases"',
    '    rows: Rows = yield Statement("expired_leases"',
)

MUTANTS = [
    Mutant(
        "reclaim-resets-attempts",
        "a job that is taken back has its attempts set back",
        [Edit(OUTCOME, CRASHED, CRASHED.replace("crashes=1", "crashes=1, refund=1"))],
        paths=("claim", "finish-succeeded"),
        points=10,
    ),
    Mutant(
        "crashes-uncounted",
        "a lost worker is not counted",
        [Edit(OUTCOME, CRASHED, CRASHED.replace(", crashes=1", ""))],
        paths=("claim", "finish-succeeded"),
        points=10,
    ),
    Mutant(
        "poison-for-ever",
        "a job that kills its workers is never given up",
        [Edit(OUTCOME, "    elif claim.crashes + 1 >= claim.max_crashes:\n", "    elif False:\n")],
        paths=("reclaim",),
        points=10,
    ),
    Mutant(
        "reclaim-overwrites",
        "a sweep looks first and writes later, over a finish that came in between",
        [LOOKS_FIRST, WITHOUT_STATE],
        paths=("late-finish",),
        points=12,
        store=SQLITE,
    ),
    Mutant(
        "reclaim-overwrites-postgres",
        "a sweep looks first and writes later, over a finish that came in between",
        [LOOKS_FIRST, WITHOUT_STATE],
        paths=("late-finish",),
        points=12,
        store=POSTGRES,
    ),
    Mutant(
        "cancel-forgotten",
        "a job that was asked to stop is run again when its owner dies",
        [
            Edit(
                OUTCOME,
                'too many workers already."""\n    if cancelling:\n',
                'too many workers already."""\n    if False:\n',
            ),
            Edit(
                FINISH,
                f"SET state = CASE WHEN j.cancelling AND {BACK} THEN 'cancelled'"
                "\n        ELSE t.state END,",
                "SET state = t.state, cancelling = false,",
            ),
            Edit(
                FINISH,
                f"    worker = CASE WHEN {BACK} AND NOT j.cancelling",
                f"    worker = CASE WHEN {BACK}",
            ),
            Edit(
                FINISH,
                f"finished_at = CASE WHEN {BACK} AND NOT j.cancelling",
                f"finished_at = CASE WHEN {BACK}",
            ),
        ],
        paths=("reclaim", "cancel-running"),
        points=16,
        store=SQLITE,
    ),
    Mutant(
        "nobody-reclaims",
        "no worker takes back what the dead held",
        [
            Edit(
                HEAL,
                '            Loop("reclaim", self.reclaim, self._state.settings.reclaim_every),\n',
                "",
            )
        ],
        paths=("claim",),
        points=4,
    ),
    Mutant(
        "lock-ignored",
        "a liveness lock that is free says nothing",
        [Edit(RENEW, "SELECT 'worker', w.id FROM ol.worker AS w WHERE w.proof IS NOT NULL",
              "SELECT 'worker', w.id FROM ol.worker AS w WHERE w.proof = 'none'")],
        paths=("lock",),
        points=4,
        store=SQLITE,
    ),
    Mutant(
        "lock-ignored-postgres",
        "a liveness lock that is free says nothing",
        [Edit(RENEW, "    AND pg_try_advisory_xact_lock(hashtextextended(w.id, 0))",
              "    AND NOT pg_try_advisory_xact_lock_shared(hashtextextended(w.id, 0))"
              " AND w.lease < 0")],
        paths=("lock",),
        points=4,
        store=POSTGRES,
    ),
    Mutant(
        "living-buried",
        "a worker is taken for dead while it holds its lock",
        [Edit("store/sqlite/liveness.py", "return False\n    else:", "return True\n    else:")],
        paths=("neighbours",),
        points=4,
        store=SQLITE,
    ),
    Mutant(
        "living-buried-postgres",
        "a worker is taken for dead while it holds its lock",
        [
            Edit(RENEW, "    AND pg_try_advisory_xact_lock(hashtextextended(w.id, 0))", ""),
            Edit("store/sql/workers.sql",
                 " WHERE pg_try_advisory_xact_lock(hashtextextended(id, 0))", ""),
        ],
        paths=("neighbours",),
        points=16,
        store=POSTGRES,
    ),
    Mutant(
        "burial-of-neighbours",
        "with one dead worker, everybody's jobs are taken back",
        [
            Edit(
                RENEW,
                "-- sqlite: one writer at a time\nSELECT ol.claim_columns, cancelling,"
                " ol.epoch(lease_until)\nFROM ol.job\n"
                "WHERE state = 'running' AND worker IN (SELECT ol.each(:workers))",
                "-- sqlite: one writer at a time\nSELECT ol.claim_columns, cancelling,"
                " ol.epoch(lease_until)\nFROM ol.job\n"
                "WHERE state = 'running' AND :workers IS NOT NULL",
            )
        ],
        paths=("bury",),
        points=8,
        store=SQLITE,
    ),
    Mutant(
        "deadline-for-all",
        "a job with a deadline is ended before that has passed",
        [
            Edit(
                RENEW,
                "    AND (started_at + timeout + :slack < ol.now() OR",
                "    AND (started_at + :slack < ol.now() OR",
            )
        ],
        paths=("overdue",),
        points=8,
        store=SQLITE,
    ),
    Mutant(
        "expire-ends-running",
        "expiry also ends what was started in time",
        [
            Edit(
                DUTIES,
                "UPDATE ol.job\nSET state = 'cancelled', finished_at = ol.now(), ol.no_wait,\n"
                "    error = '{",
                "UPDATE ol.job\nSET state = 'cancelled', finished_at = ol.now(), ol.no_wait,"
                " lease_until = NULL,\n    error = '{",
            ),
            Edit(
                DUTIES,
                "    SELECT id FROM ol.job\n    WHERE expires_at IS NOT NULL"
                " AND state IN ('waiting', 'scheduled', 'ready')\n",
                "    SELECT id FROM ol.job\n    WHERE expires_at IS NOT NULL"
                " AND state IN ('waiting', 'scheduled', 'ready', 'running')\n",
            ),
        ],
        paths=("expire-running",),
        points=8,
        store=SQLITE,
    ),
    Mutant(
        "run-after-expiry",
        "a job past its expiry is claimed all the same",
        [
            Edit(
                "store/sql/claim.sql",
                "startable\n(expires_at IS NULL OR expires_at > ol.now())\n        AND (task",
                "startable\n(task",
            )
        ],
        paths=("expire",),
        points=8,
        store=SQLITE,
    ),
    Mutant(
        "duty-for-ever",
        "a duty belongs to whoever took it first",
        [
            Edit(
                DUTIES,
                "    WHERE d.next_at <= ol.now() OR",
                "    WHERE d.next_at <= ol.now() AND d.worker = excluded.worker OR",
            )
        ],
        paths=("duty",),
        points=2,
    ),
]  # fmt: skip
