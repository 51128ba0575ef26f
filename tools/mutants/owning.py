"""Fences and leases that do not hold."""

from __future__ import annotations

from .mutation import POSTGRES, SQLITE, Edit, Mutant

FINISH, RENEW, OPERATE = "store/sql/finish.sql", "store/sql/renew.sql", "store/sql/operate.sql"
OFFERS = "store/sql/offers.sql"
HOLDS = ("renew", "report")

GUARD = (
    "WHERE j.id = t.id AND j.fence = t.fence AND ol.same_owner AND j.state || '' = 'running'\n"
    "RETURNING ol.finish_columns"
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
    Edit(
        "ops/claim.py",
        'self.limit, "lease": self.lease}',
        'self.limit, "lease": time.time() + self.lease}',
    ),
    Edit(
        "store/sql/claim.sql",
        "    lease_until = ol.later(:lease), started_at = ol.now()\n",
        "    lease_until = :lease, started_at = ol.now()\n",
    ),
]

OWNER_OF = {
    "finish": Edit(FINISH, GUARD, GUARD.replace(" AND ol.same_owner", "")),
    "succeed": Edit(FINISH, SUCCEEDS, SUCCEEDS.replace("j.worker = :owner", ":owner <> ''")),
    "lost-answer": Edit(FINISH, "WHERE ol.owned_then AND (", "WHERE ("),
    "events": Edit(OPERATE, EVENTS, EVENTS.replace(" AND ol.same_owner", "")),
}
HOLDING = "WHERE j.id = t.id AND j.fence = t.fence AND ol.same_owner"
HOLDING_POSTGRES = "    WHERE j.fence = t.fence AND ol.same_owner"
OFFER_OF = {
    "late-events": Edit(OFFERS, "WHERE ol.owned_then AND (", "WHERE ("),
    "events-kept": Edit(OFFERS, " AND ol.owned_then\n", "\n"),
    "offer": Edit(OFFERS, HOLDING, HOLDING.replace(" AND ol.same_owner", "")),
}


def _without_owner(name: str, edit: Edit, path: str, store: str = SQLITE) -> Mutant:
    kind = "-postgres" if store == POSTGRES else ""
    told = "of two owners with one fence, both are heard"
    return Mutant(
        f"{name}-without-owner{kind}", told, [edit], paths=(path,), points=24, store=store
    )


MUTANTS = [
    *(_without_owner(name, edit, "split-history", store)
      for name, edit in OWNER_OF.items() for store in (SQLITE, POSTGRES)),
    *(_without_owner(name, edit, "split-offers") for name, edit in OFFER_OF.items()),
    _without_owner(
        "offer", Edit(OFFERS, HOLDING_POSTGRES, "    WHERE j.fence = t.fence"), "split-offers",
        POSTGRES,
    ),
    Mutant(
        "two-owners-in-one-call",
        "of two owners that report in one call, both are accepted",
        [
            Edit(
                "ops/finish.py",
                "    transitions, rivals = split_rivals(transitions)\n"
                "    yield from hold_awaited(transitions)\n",
                "    rivals: list[Transition] = []\n"
                "    yield from hold_awaited(transitions)\n",
            )
        ],
        paths=("split-history",),
        points=24,
    ),
    Mutant(
        "finish-without-fence",
        "a finish is guarded by its job's id alone",
        [WITHOUT_FENCE],
        paths=("claimed-again",),
        points=24,
        store=SQLITE,
    ),
    Mutant(
        "finish-without-fence-postgres",
        "a finish is guarded by its job's id alone",
        [WITHOUT_FENCE],
        paths=("claimed-again",),
        points=24,
        store=POSTGRES,
    ),
    Mutant(
        "succeed-without-fence",
        "first-try successes are guarded by their jobs' ids alone",
        [SUCCEED_WITHOUT_FENCE],
        paths=("claimed-again",),
        points=24,
        store=SQLITE,
    ),
    Mutant(
        "succeed-without-fence-postgres",
        "first-try successes are guarded by their jobs' ids alone",
        [SUCCEED_WITHOUT_FENCE],
        paths=("claimed-again",),
        points=24,
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
        paths=("claimed-again",),
        points=24,
        store=SQLITE,
    ),
    Mutant(
        "events-without-fence-postgres",
        "progress and logs of a lost claim are kept",
        [EVENTS_WITHOUT_FENCE],
        paths=("claimed-again",),
        points=24,
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
