"""Leases that are believed although they prove nothing."""

from __future__ import annotations

from .mutation import POSTGRES, SQLITE, Edit, Mutant

RENEW, DUTIES, RECLAIM = "store/sql/renew.sql", "store/sql/duties.sql", "ops/reclaim.py"
TRUST, LEASES = "model/lease_trust.py", "worker/leases.py"

AT_ONCE = Edit(
    RENEW,
    "(j.worker LIKE 'offer-%' OR :stable >= COALESCE(",
    "(j.worker LIKE '%' OR :stable >= COALESCE(",
)

MUTANTS = [
    Mutant(
        "lease-believed-at-once",
        "an expired lease is believed before its owner could renew",
        [AT_ONCE],
        paths=("late-sweep", "stepped-clock"),
        points=12,
    ),
    Mutant(
        "lease-believed-at-once-postgres",
        "an expired lease is believed before its owner could renew",
        [AT_ONCE],
        paths=("late-sweep", "stepped-clock"),
        points=12,
        store=POSTGRES,
    ),
    Mutant(
        "late-sweep-takes",
        "a sweep that waited for somebody's lock takes jobs all the same",
        [Edit(RENEW, "\n    AND ol.now() < :until", "\n    AND :until > 0")],
        paths=("late-sweep",),
        points=8,
        store=SQLITE,
    ),
    Mutant(
        "late-sweep-takes-postgres",
        "a sweep that waited for somebody's lock takes jobs all the same",
        [
            Edit(
                RENEW,
                " AND ol.believed\n    AND date_part('epoch', clock_timestamp()) < :until",
                " AND ol.believed\n    AND date_part('epoch', clock_timestamp()) > :until * 0",
            )
        ],
        paths=("late-sweep",),
        points=8,
        store=POSTGRES,
    ),
    Mutant(
        "sweep-passes-share-lock-postgres",
        "a sweep goes through under a lock that keeps owners from renewing",
        [
            Edit(
                RENEW,
                "WITH renewable AS (UPDATE ol.job SET lease_until = lease_until WHERE false"
                " RETURNING id)\n",
                "",
            )
        ],
        paths=("late-sweep",),
        points=4,
        store=POSTGRES,
    ),
    Mutant(
        "calm-without-probes",
        "a stable period is believed long after its last probe",
        [Edit(TRUST, " and now - self._probed_at <= self._longest_gap:", ":")],
        paths=("late-sweep",),
        points=4,
    ),
    Mutant(
        "endless-lease-unseen",
        "nobody looks at a lease from before the clock stepped back",
        [Edit(RENEW, " AND lease_until > ol.later(:far))", " AND lease_until < 0 * :far)")],
        paths=("early-deadline",),
        points=4,
        store=SQLITE,
    ),
    Mutant(
        "clock-step-unseen",
        "a step of the database's clock is not seen",
        [Edit(TRUST, "        if stepped:\n            self.doubt()\n", "")],
        paths=("stepped-clock",),
        points=4,
    ),
    Mutant(
        "stall-charged",
        "a crash is charged although the owner's process exists",
        [
            Edit(
                RECLAIM,
                "frozenset(locked([id for (id,) in locked_rows]) if locked_rows else ())",
                "frozenset()",
            )
        ],
        paths=("stalled",),
        points=8,
    ),
    Mutant(
        "stall-charged-postgres",
        "a crash is charged although the owner's process exists",
        [
            Edit(
                RECLAIM,
                "frozenset(locked([id for (id,) in locked_rows]) if locked_rows else ())",
                "frozenset()",
            )
        ],
        paths=("stalled",),
        points=8,
        store=POSTGRES,
    ),
    Mutant(
        "stalled-for-ever",
        "a job that wedges every process that it meets is never given up",
        [
            Edit(
                "model/outcome.py",
                "    if stalls > suspect_at and",
                "    if stalls < 0 and",
            )
        ],
        paths=("stalled",),
        points=8,
    ),
    Mutant(
        "early-deadline",
        "a timeout is counted from before the clock stepped",
        [Edit(RENEW, "    AND :since + timeout + :slack < ol.now() AND", "    AND :since > 0 AND")],
        paths=("early-deadline",),
        points=8,
        store=SQLITE,
    ),
    Mutant(
        "owner-lets-go-of-locked",
        "an owner lets go of its jobs because of somebody's lock",
        [
            Edit(
                LEASES,
                "        self._in_flight.extend_while_locked(fences, at + lease *"
                " RENEWAL_SHARE * LEASE_SAFETY)\n",
                "",
            )
        ],
        paths=("foreign-lock",),
        points=4,
    ),
    Mutant(
        "renewal-waits-for-lock",
        "a renewal waits for somebody's lock until its lease is over",
        [Edit(LEASES, "return max(MIN_LOCK_WAIT_S, lease * LOCK_WAIT_SHARE)", "return lease * 9")],
        paths=("foreign-lock",),
        points=4,
    ),
    Mutant(
        "remote-workers-look",
        "remote workers are counted among those who look for lost jobs",
        [Edit(RENEW, " AND id NOT LIKE 'remote-%'", "")],
        paths=("shared-looks",),
        points=4,
    ),
    Mutant(
        "duty-put-off",
        "a duty is put off by an hour when the clock steps back",
        [Edit(DUTIES, " OR d.next_at > ol.later(2 * d.every)", "")],
        paths=("shared-looks",),
        points=4,
    ),
]
