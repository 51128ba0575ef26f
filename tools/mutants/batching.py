"""Items that are charged with, or cleared by, what became of others."""

from __future__ import annotations

from .mutation import Edit, Mutant

BATCH = "worker/batch.py"

MUTANTS = [
    Mutant(
        "batch-clears-the-named",
        "items that a handler names as failed succeed with the others",
        [
            Edit(
                BATCH,
                "    if failure is None:\n        return item.returned(result)\n",
                "    if failure is not item:\n        return item.returned(result)\n",
            )
        ],
        paths=("worker-batch",),
        points=4,
    ),
    Mutant(
        "batch-loses-half",
        "a batch that fails is called again with one of its halves",
        [
            Edit(
                "model/batch.py",
                "            self._parts += [list(part[:half]), list(part[half:])]\n",
                "            self._parts += [list(part[half:])]\n",
            )
        ],
        paths=("worker-batch",),
        points=4,
    ),
    Mutant(
        "batch-blames-all",
        "one item that spoils a call is the failure of all",
        [
            Edit(
                BATCH,
                "        if len(items) == 1:\n            self.end_item(items[0], items[0].raised",
                "        for one in items:\n            self.end_item(one, one.raised",
            )
        ],
        paths=("worker-batch",),
        points=4,
    ),
]
