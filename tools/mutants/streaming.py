"""Streamed output that is stored by whoever must not."""

from __future__ import annotations

from .mutation import POSTGRES, SQLITE, Edit, Mutant

SQL = "store/sql/streams.sql"
JOIN = "JOIN held AS j ON j.id = t.job AND j.fence = t.fence AND ol.same_owner\n"

OWNER = " AND ol.same_owner"

MUTANTS = [
    Mutant(
        f"stream-without-{what}-{store}",
        "output is stored by whoever streamed it, of whichever claim or owner",
        [Edit(SQL, JOIN, changed)],
        paths=(path,),
        points=24,
        store=store,
    )
    for store in (SQLITE, POSTGRES)
    for what, changed, path in (
        ("fence", JOIN.replace(" AND j.fence = t.fence", ""), "claimed-again"),
        ("owner", JOIN.replace(OWNER, ""), "split-history"),
    )
]
