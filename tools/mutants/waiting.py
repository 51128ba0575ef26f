"""Waits that are missed, decided twice or by whoever must not; signals that are lost or taken
twice."""

from __future__ import annotations

from .mutation import POSTGRES, Edit, Mutant

OPS, SIGNALS, WAKE_UPS = "ops/waits.py", "ops/signals.py", "ops/wake_ups.py"
SQL, SIGNALS_SQL = "store/sql/waits.sql", "store/sql/signals.sql"
OUTCOME = "model/outcome.py"
HELD = """j.id = ol.id(:job) AND j.fence = :fence AND j.worker IN (:worker, :offered_by)
    AND j.state || '' = 'running'"""
OWNER = "j.worker IN (:worker, :offered_by)"
ANYBODY = "CAST(:worker AS text) <> COALESCE(CAST(:offered_by AS text), '')"

MUTANTS = [
    Mutant(
        "early-signal-not-seen",
        "an attempt that ends does not look for signals that came before",
        [Edit(OPS, '{"ids": json.dumps(watching)}', '{"ids": "[]"}')],
        paths=("signal-early",),
        points=24,
    ),
    Mutant(
        "signal-wakes-nobody",
        "a signal is kept, and the job that waits for it is not started",
        [
            Edit(
                SIGNALS,
                'Statement("wake_signalled", {"ids": json.dumps([signal.job])})',
                'Statement("wake_signalled", {"ids": "[]"})',
            )
        ],
        paths=("wait",),
        points=24,
    ),
    Mutant(
        "signal-taken-twice",
        "a signal stays there for the next wait",
        [Edit(SQL, "ol.wanted_signal AND s.taken_by IS NULL", "ol.wanted_signal")],
        paths=("signal-early",),
        points=24,
    ),
    Mutant(
        "signal-kept-twice",
        "a signal that is sent again under its key is another one",
        [Edit(SIGNALS, '"key": signal.stored_key, "by": by', '"key": None, "by": by')],
        paths=("signal-early",),
        points=40,
    ),
    Mutant(
        "signal-taken-without-fence",
        "a claim that was lost takes the signal of the next one",
        [Edit(SQL, HELD, HELD.replace("j.fence = :fence", ":fence > 0"))],
        paths=("claimed-again",),
        points=24,
    ),
    Mutant(
        "signal-taken-without-owner",
        "of two owners with one fence, both take the signal",
        [Edit(SQL, HELD, HELD.replace(OWNER, ANYBODY))],
        paths=("split-history",),
        points=24,
    ),
    Mutant(
        "lost-response-waits-again",
        "a decision whose response was lost is not found again",
        [
            Edit(
                OPS,
                "        if kept is not None and kept.over:\n            return kept\n    return (",
                "    return (",
            ),
            Edit(SQL, "(w.ended_at IS NOT NULL\n            OR (w.kind", "(w.ended_at IS NULL\n            AND (w.kind"),  # noqa: E501
        ],
        campaign="ackloss",
        paths=("take-signal",),
        points=24,
        store=POSTGRES,
    ),
    Mutant(
        "transaction-signal-not-delivered",
        "a signal of a caller's transaction is marked as seen, and wakes nobody",
        [Edit(WAKE_UPS, 'Statement("wake_signalled", {"ids": ids})', 'Statement("wake_signalled", {"ids": "[]"})')],  # noqa: E501
        paths=("signal-in-transaction",),
        points=24,
    ),
    Mutant(
        "timeout-wakes-nobody",
        "a wait that has timed out goes on",
        [Edit(SQL, "UPDATE ol.job SET ol.woken\nWHERE id IN (", "UPDATE ol.job SET ol.woken\nWHERE id NOT IN (SELECT id FROM ol.job) AND id IN (")],  # noqa: E501
        paths=("wait-times-out",),
        points=18,
    ),
    Mutant(
        "awaited-not-marked",
        "the end of a job does not concern the one that waits for it",
        [Edit(SQL, "SET awaited = true, tied = true", "SET awaited = false")],
        paths=("wait-for-job",),
        points=28,
    ),
    Mutant(
        "wait-is-charged",
        "an attempt that waits is spent",
        [Edit(OUTCOME, "delay=delay, refund=1, wait=wait)", "delay=delay, wait=wait)")],
        paths=("wait",),
        points=24,
    ),
    Mutant(
        "sender-does-not-lock",
        "a signal and the end of an attempt miss each other",
        [
            Edit(
                SIGNALS_SQL,
                "WHERE j.id = ol.id(:id) AND ol.in_reach FOR UPDATE",
                "WHERE j.id = ol.id(:id) AND ol.in_reach",
            )
        ],
        paths=("signal-beside-end",),
        points=8,
        store=POSTGRES,
    ),
    Mutant(
        "sender-at-once-does-not-lock",
        "a signal that is sent in one statement and the end of an attempt miss each other",
        [
            Edit(
                SIGNALS_SQL,
                "WHERE j.id = ol.id(:job) FOR UPDATE),",
                "WHERE j.id = ol.id(:job)),",
            )
        ],
        paths=("signal-at-once-beside-end",),
        points=8,
        store=POSTGRES,
    ),
]  # fmt: skip
