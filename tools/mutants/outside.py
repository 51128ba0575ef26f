"""Faults from outside that go unnoticed: replaced files, other databases and encodings, moments and
rows that nobody can read."""

from __future__ import annotations

from .mutation import POSTGRES, SQLITE, Edit, Mutant

UNSEEN_AT_COMMIT = Edit(
    "store/sqlite/file_identity.py",
    "        return self._are_in_place(2)\n",
    "        return True\n",
)
UNSEEN_BEFORE = Edit(
    "store/sqlite/file_identity.py",
    "        return self._are_in_place(3)\n",
    "        return True\n",
)
UNBOUND = Edit(
    "model/timestamps.py",
    "    if not within_bounds(since):\n        raise _out_of_bounds(name, value)\n",
    "",
)
BELIEVED = Edit(
    "model/job.py",
    "    if state is None or not _is_valid(facts):\n",
    "    if state is None:\n",
)

MUTANTS = [
    Mutant(
        "replaced-file-unseen",
        "a commit into a file that has been replaced is acknowledged",
        [UNSEEN_AT_COMMIT, UNSEEN_BEFORE],
        paths=("file-replaced", "file-renamed"),
        points=8,
        store=SQLITE,
    ),
    Mutant(
        "gone-file-made-anew",
        "a database that was taken away is made anew, empty, by whoever had it open",
        [
            Edit(
                "store/sqlite/store.py",
                "        if not self._known:\n            create_private(self.path)\n",
                "        if True:\n            create_private(self.path)\n",
            ),
        ],
        paths=("file-renamed",),
        points=8,
        store=SQLITE,
    ),
    Mutant(
        "any-database",
        "a caller's connection to another database is taken for one to ours",
        [
            Edit(
                "store/caller/connection.py",
                "        if is_known(driver, store):\n            return drive(op, session)\n",
                "        if True:\n            return drive(op, session)\n",
            )
        ],
        paths=("other-file",),
        points=4,
        store=SQLITE,
    ),
    Mutant(
        "any-encoding",
        "tables are made in a database whose encoding cannot hold our text",
        [
            Edit(
                "store/postgres/store.py",
                "            self._check_encoding(link)\n            while step := retry",
                "            while step := retry",
            )
        ],
        paths=("encoding",),
        points=2,
        store=POSTGRES,
    ),
    Mutant(
        "moments-unbound",
        "a moment that no reader can show is stored",
        [UNBOUND],
        paths=("far-moment",),
        points=4,
        store=SQLITE,
    ),
    Mutant(
        "bad-rows-believed",
        "a row that cannot be read is taken for one that can",
        [BELIEVED],
        paths=("far-moment",),
        points=4,
        store=POSTGRES,
    ),
]
