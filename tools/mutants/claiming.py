"""Jobs claimed too early, twice, or by whoever must not."""

from __future__ import annotations

from .mutation import POSTGRES, SQLITE, Edit, Mutant

PICKED = "    WHERE ol.claimable\n    ORDER BY priority DESC, run_at, id\n"
CLAIM, FINISH = "store/sql/claim.sql", "store/sql/finish.sql"

MUTANTS = [
    Mutant(
        "share-by-priority",
        "the share of the longest due goes to the highest priority, and low ones starve",
        [
            Edit(
                "store/sql/claim.sql",
                "ORDER BY found.due NULLS LAST, found.priority DESC LIMIT 1)",
                "ORDER BY found.priority DESC LIMIT 1)",
            )
        ],
        paths=("claim-longest-due",),
        points=6,
    ),
    Mutant(
        "claim-without-skip-locked",
        "who claims does not lock what it picks, so two may pick the same",
        [
            Edit(
                CLAIM,
                f"{PICKED}    LIMIT :limit\n    FOR UPDATE SKIP LOCKED)\n",
                f"{PICKED}    LIMIT :limit)\n",
            )
        ],
        paths=("claim-race",),
        points=12,
        store=POSTGRES,
    ),
    Mutant(
        "claim-without-state",
        "a claim also takes what somebody else is running",
        [
            Edit(
                CLAIM,
                "claimable\nstate = 'ready' AND",
                "claimable\nstate IN ('ready', 'running') AND",
            )
        ],
        paths=("worker", "neighbours"),
        points=12,
        store=SQLITE,
    ),
    Mutant(
        "claim-without-fence",
        "a new claim has the fence of the old one",
        [
            Edit(
                CLAIM,
                "fence = j.fence + CASE WHEN j.fence < 9223372036854775807 THEN 1 ELSE 0 END,",
                "fence = max(j.fence, 1),",
            )
        ],
        paths=("finish-succeeded", "finish-failed"),
        points=12,
        store=SQLITE,
    ),
    Mutant(
        "claim-without-charge",
        "attempts are not charged at claim",
        [
            Edit(
                CLAIM,
                "attempt = j.attempt + CASE WHEN j.attempt < 2147483647 THEN 1 ELSE 0 END,",
                "attempt = greatest(j.attempt, 1),",
            )
        ],
        paths=("finish-succeeded", "finish-failed"),
        points=12,
        store=POSTGRES,
    ),
    Mutant(
        "promote-too-early",
        "what is scheduled is made ready at once",
        [
            Edit(
                CLAIM,
                "    SELECT id FROM ol.job WHERE state = 'scheduled' AND run_at <= ol.now()\n",
                "    SELECT id FROM ol.job WHERE state = 'scheduled'\n",
            )
        ],
        paths=("not-yet",),
        points=8,
        store=SQLITE,
    ),
    Mutant(
        "promote-too-early-postgres",
        "what is scheduled is made ready at once",
        [
            Edit(
                CLAIM,
                "AS chosen FROM ol.job WHERE state = 'scheduled' AND run_at <= ol.now()\n",
                "AS chosen FROM ol.job WHERE state = 'scheduled'\n",
            )
        ],
        paths=("not-yet",),
        points=8,
        store=POSTGRES,
    ),
    Mutant(
        "no-back-off",
        "a retry is due at once, whatever its policy says",
        [
            Edit(
                FINISH,
                "THEN j.run_at\n        ELSE ol.later(t.delay) END,\n    wait_name",
                "THEN j.run_at\n        ELSE ol.now() END,\n    wait_name",
            )
        ],
        paths=("back-off",),
        points=20,
        store=SQLITE,
    ),
    Mutant(
        "suspects-together",
        "jobs that may be poison share a process",
        [
            Edit(
                CLAIM,
                f"OR (ol.boolean(:last_life) AND id = (\n{' ' * indented}SELECT",
                f"OR (:last_life IS NOT NULL AND id IS NOT NULL OR id = (\n{' ' * indented}SELECT",
            )
            for indented in (12, 16)  # of one queue, and of several
        ],
        paths=("poison",),
        points=12,
        store=SQLITE,
    ),
    Mutant(
        "paused-in-vain",
        "a paused queue is claimed from",
        [
            Edit(
                "store/sql/operate.sql",
                "(name, paused, changed_at) VALUES (:queue, true, ol.now())\n",
                "(name, paused, changed_at) VALUES (:queue, false, ol.now())\n",
            )
        ],
        paths=("pause",),
        points=8,
    ),
]
