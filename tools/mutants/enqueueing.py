"""Jobs that come to be half, twice, or outside of the caller's transaction."""

from __future__ import annotations

from .mutation import POSTGRES, SQLITE, Edit, Mutant

ONE_BY_ONE = Edit(
    "ops/enqueue.py",
    '        rows: Rows = yield Statement("insert_jobs", rows=[job.row() for job in part])\n',
    "        rows: Rows = []\n"
    "        for job in part:\n"
    '            rows += yield Statement("insert_jobs", rows=[job.row()])\n',
)
IN_PARTS = Edit(
    "client/enqueue.py",
    "        return await on.run(enqueue_many, jobs)\n",
    "        parts = jobs[:9], jobs[9:]\n"
    "        return [job for part in parts for job in await on.run(enqueue_many, part)]\n",
)
OWN_CONNECTION = Edit(
    "client/enqueue.py",
    "        return await on.run_on(conn, _insert_and_notify(on, jobs, full, counted, reserved))\n",
    "        return await on.run(_insert_and_notify, on, jobs, full, counted, reserved)\n",
)
TRANSACTIONS = ("rollback", "transaction")

MUTANTS = [
    Mutant(
        "quota-counts-apart",
        "jobs are inserted in one transaction, and counted in another",
        [
            Edit(
                "ops/quotas.py",
                "    yield BEGIN\n    before: Rows",
                "    before: Rows",
            )
        ],
        paths=("quota",),
        points=40,
    ),
    Mutant(
        "quota-reserved-for-ever",
        "what was reserved for jobs that were never inserted is not given back",
        [Edit("store/sql/quotas.sql", "used = ol.greatest(0, u.used - t.asked)", "used = u.used")],
        paths=("quota",),
        points=24,
    ),
    Mutant(
        "bulk-one-by-one",
        "jobs of one call are inserted in a transaction each",
        [ONE_BY_ONE],
        paths=("bulk-few", "transaction-bulk"),
        points=24,
    ),
    Mutant(
        "bulk-one-by-one-postgres",
        "jobs of one call are inserted in a transaction each",
        [ONE_BY_ONE],
        paths=("bulk-few",),
        points=24,
        store=POSTGRES,
    ),
    Mutant(
        "bulk-in-parts",
        "jobs of one call are copied in two transactions",
        [IN_PARTS],
        paths=("bulk",),
        points=24,
    ),
    Mutant(
        "bulk-in-parts-postgres",
        "jobs of one call are copied in two transactions",
        [IN_PARTS],
        paths=("bulk",),
        points=24,
        store=POSTGRES,
    ),
    Mutant(
        "own-connection",
        "the caller's transaction is ignored: the job commits by itself",
        [OWN_CONNECTION],
        paths=TRANSACTIONS,
        points=8,
        store=POSTGRES,
    ),
    Mutant(
        "commit-for-the-caller",
        "enqueue commits the caller's transaction, as a helpful library might",
        [
            Edit(
                "store/caller/connection.py",
                '        connection.execute("RELEASE outlast")\n'
                "        if alone and commits_by_itself(connection):\n",
                '        connection.execute("RELEASE outlast")\n        if True:\n',
            )
        ],
        paths=TRANSACTIONS,
        points=16,
        store=SQLITE,
    ),
    Mutant(
        "key-ignored",
        "the unique key is not stored, so it holds nobody back",
        [Edit("model/task.py", '"key": merged.key,\n', '"key": None,\n')],
        paths=("enqueue-key",),
        points=8,
    ),
    Mutant(
        "unique-waiting-ignored",
        "a job that waits under a unique key holds no other one back",
        [
            Edit(
                "ops/unique_keys.py",
                "            if in_the_way and id in open_ones\n",
                "            if False\n",
            )
        ],
        paths=("unique-waiting",),
        points=8,
    ),
    Mutant(
        "debounce-replaces-running",
        "a debounced call replaces the arguments of a job that runs",
        [
            Edit(
                "store/sql/unique.sql",
                "ELSE j.state IN ('waiting', 'scheduled', 'ready') AND j.wait_name",
                "ELSE j.state IN ('waiting', 'scheduled', 'ready', 'running') AND j.wait_name",
            ),
            Edit(
                "store/sql/unique.sql",
                "WHERE j.id = t.id AND j.state || '' IN ('scheduled', 'ready')\n",
                "WHERE j.id = t.id AND j.state || '' IN ('scheduled', 'ready', 'running')\n",
            ),
        ],
        paths=("debounce",),
        points=8,
    ),
    Mutant(
        "overflow-ignored",
        "a full queue takes every job",
        [Edit("model/admission.py", "    if asked <= found.room:\n", "    if True:\n")],
        paths=("queue-full",),
        points=8,
    ),
    Mutant(
        "retry-on-unknown-commit",
        "an enqueue whose answer got lost is sent again as another job",
        [
            Edit(
                "client/enqueue.py",
                "        made = [await on.run(enqueue_one, jobs[0])]\n",
                "        from dataclasses import replace\n"
                "        from ..model.ids import new_job_id\n"
                "        made = [await on.run(\n"
                "            lambda: enqueue_one(replace(jobs[0], id=new_job_id()))\n"
                "        )]\n",
            ),
            Edit(
                "client/enqueue.py",
                "        made = await on.run(enqueue_one, job, on.store.channel)\n",
                "        from dataclasses import replace\n"
                "        from ..model.ids import new_job_id\n"
                "        made = await on.run(lambda: enqueue_one(\n"
                "            replace(job, id=new_job_id()), on.store.channel)\n"
                "        )\n",
            ),
        ],
        paths=("enqueue-unheard",),
        points=8,
        store=POSTGRES,
    ),
    Mutant(
        "notify-only",
        "workers look when they are woken, and never by themselves",
        [
            Edit(
                "worker/poller.py",
                "        self._poll_at = now + self._idle_backoff * random.uniform(0.75, 1.25)\n",
                "        self._poll_at = now + 1e9\n",
            )
        ],
        paths=("unannounced",),
        points=2,
        store=POSTGRES,
    ),
]
