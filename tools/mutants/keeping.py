"""Pruning, and the tables themselves."""

from __future__ import annotations

from .mutation import POSTGRES, SQLITE, Edit, Mutant

SQLITE_PRUNE = (
    "DELETE FROM ol.job WHERE id IN (\n    SELECT id FROM ol.job AS j\n    WHERE state IN"
    " ('succeeded', 'cancelled') AND state = :state AND finished_at < ol.ago(:keep)\n"
)
POSTGRES_PRUNE = (
    "    SELECT id AS chosen FROM ol.job AS j\n    WHERE state IN ('succeeded', 'cancelled')"
    " AND state = :state AND finished_at < ol.ago(:keep)\n"
)

ARCHIVE_DELETE = (
    "    DELETE FROM ol.job AS j USING chosen WHERE j.id = chosen.moving RETURNING j.*),\n"
)
ARCHIVE_INSERT = "    INSERT INTO ol.past (ol.whole_row) SELECT ol.whole_row FROM gone\n"

MUTANTS = [
    Mutant(
        "archive-copies",
        "an archived job stays in the table of jobs",
        [
            Edit(
                "store/sql/archive.sql",
                ARCHIVE_DELETE,
                "    SELECT j.* FROM ol.job AS j JOIN chosen ON j.id = chosen.moving),\n",
            )
        ],
        paths=("archive",),
        points=8,
        store=POSTGRES,
    ),
    Mutant(
        "archive-loses",
        "of the jobs that leave the table of jobs, not all reach the archive",
        [
            Edit(
                "store/sql/archive.sql",
                ARCHIVE_INSERT,
                ARCHIVE_INSERT.replace("gone\n", "gone OFFSET 1\n"),
            ),
            Edit("ops/archive.py", "        if gone != kept:", "        if False:"),
        ],
        paths=("archive",),
        points=8,
        store=POSTGRES,
    ),
    Mutant(
        "prune-leaves-attempts",
        "pruned jobs leave their attempts behind",
        [Edit("ops/retention.py", '    yield Statement("prune_attempts", {"ids": ids})\n', "")],
        paths=("prune",),
        points=8,
    ),
    Mutant(
        "prune-apart",
        "a job and what belongs to it are pruned in transactions of their own",
        [
            Edit(
                "ops/retention.py",
                '    yield BEGIN\n    rows: Rows = yield Statement("prune_jobs"',
                '    rows: Rows = yield Statement("prune_jobs"',
            )
        ],
        paths=("prune",),
        points=24,
    ),
    Mutant(
        "prune-takes-the-living",
        "pruning takes jobs that have not ended",
        [
            Edit(
                "store/sql/duties.sql",
                SQLITE_PRUNE,
                "DELETE FROM ol.job WHERE id IN (\n    SELECT id FROM ol.job AS j\n"
                "    WHERE :state <> '' AND coalesce(finished_at, created_at) < ol.ago(:keep)\n",
            )
        ],
        paths=("prune",),
        points=8,
        store=SQLITE,
    ),
    Mutant(
        "prune-too-early-postgres",
        "pruning does not ask how long ago a job ended",
        [
            Edit(
                "store/sql/duties.sql",
                POSTGRES_PRUNE,
                POSTGRES_PRUNE.replace("ol.ago(:keep)", "ol.ago(:keep * 0)"),
            )
        ],
        paths=("prune",),
        points=8,
        store=POSTGRES,
    ),
    Mutant(
        "migration-apart",
        "a migration commits statement by statement",
        [
            Edit(
                "store/sqlite/migration.py",
                "with transaction(connection):  # all",
                "if True:  # all",
            )
        ],
        paths=("migrate",),
        points=12,
        store=SQLITE,
    ),
    Mutant(
        "migration-apart-postgres",
        "a migration commits statement by statement",
        [
            Edit("store/postgres/store.py", "with link.transaction():", "if True:"),
            # What travels together is one transaction all the same.
            Edit("store/postgres/migration.py", "with link.pipeline():", "if True:"),
        ],
        paths=("migrate",),
        points=12,
        store=POSTGRES,
    ),
    Mutant(
        "purge-any-state",
        "a purge of dead jobs removes what has been retried and has succeeded since",
        [
            Edit(
                "store/sql/operate.sql",
                "    AND j.state || '' = COALESCE(CAST(:state AS text), j.state)\n",
                "    AND (:state IS NULL OR :state IS NOT NULL)\n",
            )
        ],
        paths=("purge-changed",),
        points=8,
        store=SQLITE,
    ),
]
