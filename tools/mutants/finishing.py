"""Outcomes that do not count, or count for too much."""

from __future__ import annotations

from .mutation import POSTGRES, SQLITE, Edit, Mutant

FINISH, OUTCOME = "ops/finish.py", "model/outcome.py"

MUTANTS = [
    Mutant(
        "finish-before-handler",
        "a job is done before its handler has run",
        [
            Edit(
                "worker/executor.py",
                "            result = await self.call(arguments, threads)\n",
                '            result = {"fence": self.claim.fence}\n',
            )
        ],
        paths=("enqueue", "enqueue-key"),
        points=8,
    ),
    Mutant(
        "follow-ups-apart",
        "follow-up jobs and records are not in the transaction of their finish",
        [
            Edit(
                FINISH,
                "    yield BEGIN\n    if events:\n",
                "    if events:\n",
            )
        ],
        paths=("finish-followed", "finish-failed"),
        points=24,
    ),
    Mutant(
        "follow-ups-apart-postgres",
        "follow-up jobs and records are not in the transaction of their finish",
        [
            Edit(
                FINISH,
                "    yield BEGIN\n    if events:\n",
                "    if events:\n",
            )
        ],
        paths=("finish-followed",),
        points=16,
        store=POSTGRES,
    ),
    Mutant(
        "follow-ups-of-the-refused",
        "follow-up jobs are inserted although their claim was lost",
        [
            Edit(
                FINISH,
                "    queues = yield from enqueue_followups([job for t in accepted for job in"
                " t.jobs])\n",
                "    queues = yield from enqueue_followups([job for t in transitions for job"
                " in t.jobs])\n",
            )
        ],
        campaign="zombie",
        paths=("finish-followed",),
        points=6,
    ),
    Mutant(
        "told-lost-in-vain",
        "a finish whose answer got lost is told that it came too late",
        [
            Edit(
                FINISH,
                "        return _first_try_success(transition) and state is State.SUCCEEDED\n",
                "        return False\n",
            )
        ],
        paths=("finish-unheard",),
        points=6,
        store=POSTGRES,
    ),
    Mutant(
        "unrecorded",
        "attempts that did not succeed leave no record",
        [
            Edit(
                FINISH,
                "    if recorded := [t for t in accepted if not _unrecorded(t,"
                " held[_job_and_fence(t)])]:\n",
                "    if recorded := [t for t in accepted if t.outcome == 'cancelled']:\n",
            )
        ],
        paths=("finish-failed",),
        points=6,
    ),
    Mutant(
        "release-charges",
        "a job that is given back has spent its attempt",
        [
            Edit(
                OUTCOME,
                "Outcome.RELEASED, to, delay=delay, error=error, refund=1)",
                "Outcome.RELEASED, to, delay=delay, error=error)",
            )
        ],
        paths=("release", "leave"),
        points=12,
    ),
    Mutant(
        "shutdown-ends-jobs",
        "a shutdown writes a final state",
        [
            Edit(
                "worker/executor.py",
                "            return AttemptEnd(Outcome.RELEASED)\n",
                "            return AttemptEnd(Outcome.PERMANENT)\n",
            )
        ],
        paths=("shutdown",),
        points=6,
    ),
    Mutant(
        "cancel-unrecorded",
        "a cancel and its record are two transactions",
        [
            Edit(
                "ops/job_actions.py",
                "    yield BEGIN\n    changed: Rows = yield cancel_statement",
                "    changed: Rows = yield cancel_statement",
            )
        ],
        paths=("cancel-queued",),
        points=10,
    ),
    Mutant(
        "redrive-unrecorded",
        "a redrive and its record are two transactions",
        [
            Edit(
                "ops/job_actions.py",
                '    yield BEGIN\n    doomed: Rows = yield Statement("failed_because_of"',
                '    doomed: Rows = yield Statement("failed_because_of"',
            )
        ],
        paths=("redrive-dead", "redrive-all"),
        points=20,
    ),
    Mutant(
        "redrive-without-guard",
        "a redrive gives a new life to whoever is named, running or done",
        [
            Edit(
                "store/sql/operate.sql",
                "cancelling = false, expires_at = NULL\n"
                "WHERE ol.in_ids(id, :ids) AND state IN ('dead', 'cancelled')"
                " AND ol.in_reach\n",
                "cancelling = false, expires_at = NULL, lease_until = NULL, result = NULL\n"
                "WHERE ol.in_ids(id, :ids) AND ol.in_reach\n",
            )
        ],
        paths=("redrive-running",),
        points=8,
        store=SQLITE,
    ),
]
