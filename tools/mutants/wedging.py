"""Workers that stop for good: queues that rest for ever, batches retried for ever, overflows."""

from __future__ import annotations

from .mutation import POSTGRES, SQLITE, Edit, Mutant

MUTANTS = [
    Mutant(
        "rests-for-ever",
        "a queue that gave nothing is asked again only when news name it",
        [
            Edit(
                "worker/queue_rotation.py",
                "min(self._longest_backoff, doubled) * random.uniform(0.75, 1.0)",
                "1e9",
            )
        ],
        paths=("resting-queue",),
        points=2,
        store=SQLITE,
    ),
    Mutant(
        "across-without-state",
        "a claim across queues also takes what somebody else is running",
        [
            Edit(
                "store/sql/claim.sql",
                "claimable_in_each\nstate = 'ready' AND",
                "claimable_in_each\nstate IN ('ready', 'running') AND",
            )
        ],
        paths=("many-queues",),
        points=4,
        store=SQLITE,
    ),
    Mutant(
        "bad-batch-for-ever",
        "a batch that fails for an unforeseen reason is handed in as it is, again and again",
        [
            Edit(
                "worker/finisher.py",
                "return is_row_error(error) or self._failures >= self.split_after",
                "return is_row_error(error)",
            )
        ],
        paths=("unstorable-outcome",),
        points=2,
        store=SQLITE,
    ),
    Mutant(
        "fence-overflows",
        "a fence at its limit makes every claim of its queue fail",
        [
            Edit(
                "store/sql/claim.sql",
                "fence = j.fence + CASE WHEN j.fence < 9223372036854775807 THEN 1 ELSE 0 END",
                "fence = j.fence + 1",
            )
        ],
        paths=("counter-at-limit",),
        points=2,
        store=POSTGRES,
    ),
    Mutant(
        "counter-at-limit-runs",
        "a job whose fence cannot grow is run, although its next claim would have the same one",
        [Edit("worker/runner.py", "if job.claim.at_limit:", "if False:")],
        paths=("counter-at-limit",),
        points=2,
        store=SQLITE,
    ),
]
