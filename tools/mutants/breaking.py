"""Circuit breakers that charge jobs, are probed by two, or never close."""

from __future__ import annotations

from .mutation import Edit, Mutant

WORKER = "worker/breaker.py"
SQL = "store/sql/breakers.sql"

MUTANTS = [
    Mutant(
        "breaker-charges-jobs",
        "a job that fails while the breaker is open pays for the outage",
        [
            Edit(
                WORKER,
                "        return AttemptEnd(Outcome.RELEASED, delay=behind, error=error,"
                " quiet=True)\n",
                "        return ended\n",
            )
        ],
        paths=("worker-outage",),
        points=4,
    ),
    Mutant(
        "breaker-never-closes",
        "a probe that succeeds closes nothing",
        [
            Edit(
                WORKER, "            self._writes.closing[circuit] = opened\n", "            pass\n"
            )
        ],
        paths=("worker-outage",),
        points=4,
    ),
    Mutant(
        "breaker-forgets-its-opening",
        "a breaker that one worker opened is unknown to all others",
        [
            Edit(
                WORKER,
                "                self.open[circuit] = found[circuit]\n",
                "                continue\n",
            )
        ],
        paths=("worker-outage",),
        points=24,
    ),
    Mutant(
        "probe-by-two",
        "a breaker is probed by every worker that looks",
        [Edit(SQL, "    AND ol.probe_due AND EXISTS", "    AND EXISTS")],
        paths=("breaker",),
    ),
    Mutant(
        "opened-by-two",
        "a worker that finds a breaker open opens it once more",
        [
            Edit(
                SQL,
                "ON CONFLICT (queue, task) DO NOTHING\n",
                "ON CONFLICT (queue, task) DO UPDATE SET opening = excluded.opening\n",
            )
        ],
        paths=("breaker",),
    ),
    Mutant(
        "probe-outlives-its-worker",
        "a probe counts as under way although its worker is lost",
        [Edit(SQL, " AND p.fence = b.probe_fence AND p.state || '' = 'running')\n\n", ")\n\n")],
        paths=("breaker",),
    ),
    Mutant(
        "held-back-is-charged",
        "the attempt of a job that a breaker holds back is not taken back",
        [
            Edit(
                "model/outcome.py",
                "ended.delay, ended.error)._replace(quiet=ended.quiet)\n",
                "ended.delay, ended.error)._replace(quiet=ended.quiet, refund=0)\n",
            )
        ],
        paths=("breaker",),
    ),
]
