"""Steps and completions that are kept by whoever must not, too early, or apart from each other."""

from __future__ import annotations

from .mutation import POSTGRES, SQLITE, Edit, Mutant

SQL, STEPS, LENT = "store/sql/steps.sql", "worker/steps.py", "store/handler_connection.py"
SQLITE_KEEP = "WHERE j.id = :job AND j.fence = :fence\n    AND j.worker IN (:worker, :offered_by)"
OWNER = "j.worker IN (:worker, :offered_by)"
ANYBODY = "CAST(:worker AS text) <> COALESCE(CAST(:offered_by AS text), '')"
POSTGRES_KEEP = SQLITE_KEEP.replace(":job", "ol.id(:job)")

MUTANTS = [
    Mutant(
        "step-without-fence",
        "a step is kept by whoever did it, of whichever claim",
        [Edit(SQL, SQLITE_KEEP, SQLITE_KEEP.replace("j.fence = :fence", ":fence > 0"))],
        paths=("claimed-again",),
        points=24,
        store=SQLITE,
    ),
    Mutant(
        "step-without-fence-postgres",
        "a step is kept by whoever did it, of whichever claim",
        [Edit(SQL, POSTGRES_KEEP, POSTGRES_KEEP.replace("j.fence = :fence", ":fence > 0"))],
        paths=("claimed-again",),
        points=24,
        store=POSTGRES,
    ),
    Mutant(
        "step-without-owner",
        "of two owners with one fence, both keep their steps",
        [Edit(SQL, SQLITE_KEEP, SQLITE_KEEP.replace(OWNER, ANYBODY))],
        paths=("split-history",),
        points=24,
        store=SQLITE,
    ),
    Mutant(
        "step-without-owner-postgres",
        "of two owners with one fence, both keep their steps",
        [Edit(SQL, POSTGRES_KEEP, POSTGRES_KEEP.replace(OWNER, ANYBODY))],
        paths=("split-history",),
        points=24,
        store=POSTGRES,
    ),
    Mutant(
        "step-kept-before-done",
        "a step is kept before its function has run",
        [
            Edit(
                STEPS,
                "                given = yield CallFunction(call)\n"
                "                text = write(name, given, annotation)\n",
                "                stored = yield RunOperation(partial(keep, self._claim,"
                ' name, "null"))\n'
                "                given = yield CallFunction(call)\n"
                "                text = write(name, given, annotation)\n",
            )
        ],
        paths=("step",),
        points=24,
    ),
    Mutant(
        "step-not-looked-up",
        "a later attempt does not ask what was kept",
        [Edit(STEPS, "if fence > 1 else None", "if fence < 1 else None")],
        paths=("step",),
        points=24,
    ),
    Mutant(
        "completing-writes-first",
        "a handler's own writes are committed before its job is finished",
        [
            Edit(
                LENT,
                "        with sqlite.translate_errors():\n            return run_on(",
                "        with sqlite.translate_errors():\n"
                '            self.connection.execute("COMMIT")\n'
                '            self.connection.execute("BEGIN IMMEDIATE")\n'
                "            return run_on(",
            )
        ],
        paths=("completing",),
        points=24,
    ),
    Mutant(
        "completing-though-lost",
        "a handler's own writes stand although its claim was lost",
        [
            Edit(
                "ops/complete.py",
                "    if finished.lost or finished.duplicates:\n",
                "    if False:\n",
            )
        ],
        campaign="zombie",
        paths=("completing",),
        points=12,
    ),
    Mutant(
        "completing-though-lost-postgres",
        "a handler's own writes stand although its claim was lost",
        [
            Edit(
                "ops/complete.py",
                "    if finished.lost or finished.duplicates:\n",
                "    if False:\n",
            )
        ],
        campaign="zombie",
        paths=("completing",),
        points=12,
        store=POSTGRES,
    ),
]
