"""Ends of which those whom they concern hear wrongly, twice, or never."""

from __future__ import annotations

from .mutation import POSTGRES, SQLITE, Edit, Mutant

FINISH, FLOWS, TELLS = "ops/finish.py", "ops/flow_links.py", "ops/dependents.py"
BESIDE = "ops/finish_and_claim.py"
SQL, OPERATE = "store/sql/flows.sql", "ops/job_actions.py"
LIVE = "state IN ('waiting', 'scheduled', 'ready', 'running') AND NOT "
MEMBERS = (
    f"        AND {LIVE}cancelling\n        AND (ol.boolean(:asking) OR state <> 'running')\n"
    "    UNION\n"
)
SETTLED = f"            AND j.{LIVE}j.cancelling)\n        AND NOT EXISTS"
ENDED = (
    "    ended = [(id, state) for id, _, state, tied, _ in rows if tied and State(state).final]\n"
)
JOINING = "yield from enqueue_followups([job for t in accepted for job in t.jobs])"
TELLING = "yield from notify_dependents(ended, attempt_traces(accepted))"

MUTANTS = [
    Mutant(
        "followers-told-apart",
        "a job ends in one transaction, and those who wait for it are told in another",
        [Edit(FINISH, "    yield BEGIN\n    if events:\n", "    if events:\n")],
        paths=("flow-last",),
        points=10,
    ),
    Mutant(
        "followers-told-apart-beside-a-claim",
        "a job ends in one transaction, and those who wait for it are told in another",
        [
            Edit(
                BESIDE,
                "    yield BEGIN\n    transitions, rivals = split_rivals(transitions)\n",
                "    transitions, rivals = split_rivals(transitions)\n",
            )
        ],
        paths=("flow-turn-last",),
        points=10,
    ),
    Mutant(
        "nobody-told-beside-a-claim",
        "a job that ends beside a claim tells none of those who wait for it",
        [
            Edit(
                BESIDE,
                "for id, _, state, tied, _ in rows if tied]",
                "for id, _, state, tied, _ in rows if not tied]",
            )
        ],
        paths=("flow-turn-last",),
        points=10,
    ),
    Mutant(
        "stale-finish-counts",
        "a finish that was refused counts its job off all the same",
        [
            Edit(
                FINISH,
                ENDED,
                "    ended = [(t.claim.id, t.to) for t in transitions]\n",
            )
        ],
        campaign="zombie",
        paths=("flow-last",),
        points=6,
    ),
    Mutant(
        "follower-fires-at-one",
        "a follower starts when all but one have ended",
        [
            Edit(
                SQL,
                "        WHEN f.waits_for > c.ended THEN 'waiting'\n",
                "        WHEN f.waits_for > c.ended + 1 THEN 'waiting'\n",
            )
        ],
        paths=("flow-last",),
        points=8,
    ),
    Mutant(
        "dead-not-passed-on",
        "who is dead because of another tells nobody",
        [
            Edit(
                TELLS,
                "[(id, state) for id, state, _, tied in counted if state in FAILED_STATES"
                " and tied]\n",
                "list[Ending]()\n",
            )
        ],
        paths=("flow-dead",),
        points=12,
    ),
    Mutant(
        "hooks-for-every-end",
        "however a job ends, all of its hooks are made",
        [
            Edit(
                TELLS,
                '        rows = json.loads(hooks or "{}").get(state, [])\n',
                '        rows = sum(json.loads(hooks or "{}").values(), [])\n',
            )
        ],
        paths=("flow-hooks",),
        points=8,
    ),
    Mutant(
        "hooks-apart",
        "a hook is not made in the transaction of the end that it is for",
        [Edit(FINISH, "    yield BEGIN\n    if events:\n", "    if events:\n")],
        paths=("flow-hooks",),
        points=16,
    ),
    Mutant(
        "team-broken-twice",
        "those who are cancelled because their team is broken break it again",
        [
            Edit(
                SQL,
                "WHERE w.id = t.id AND w.cancelled_at IS NULL\n",
                "WHERE w.id = t.id\n",
            )
        ],
        paths=("flow-break",),
        points=8,
        store=SQLITE,
    ),
    Mutant(
        "join-after-the-count",
        "what a job adds is added after its followers have been told of its end",
        [
            Edit(
                FINISH,
                f"{ENDED}    return queues | ({TELLING})\n",
                f"    return queues | ({JOINING})\n",
            ),
            Edit(FINISH, f"    queues = {JOINING}\n", f"{ENDED}    queues = {TELLING}\n"),
        ],
        paths=("flow-join",),
        points=8,
    ),
    Mutant(
        "joining-counted-twice",
        "a job that adds others is counted off when they are added, and when it ends",
        [
            Edit(
                FLOWS,
                '        yield Statement("wait_for_more", rows=[{"id": i, "more": n}'
                " for i, n in more.items()])\n",
                '        yield Statement("recount", {"ids": json.dumps(sorted(more))})\n',
            )
        ],
        campaign="flows",
        points=150,
    ),
    Mutant(
        "turn-ends-the-tied",
        "a plain turn ends jobs whose end concerns others, and tells nobody",
        [
            Edit(
                "store/sql/finish.sql",
                "ol.ending_well AND NOT j.tied\n",
                "ol.ending_well\n",
            )
        ],
        paths=("flow-turn",),
        points=8,
        store=SQLITE,
    ),
    Mutant(
        "untied",
        "somebody comes after a job, and its owner is not to know",
        [Edit(FLOWS, '    yield Statement("mark_has_dependents", {"ids": wanted})\n', "")],
        paths=("flow-turn",),
        points=8,
    ),
    Mutant(
        "recount-without-lock",
        "a follower is counted anew while somebody counts off what it waits for",
        [
            Edit(
                SQL,
                "    AND state || '' = 'waiting' AND wait_name IS NULL\nORDER BY id FOR UPDATE\n",
                "    AND state || '' = 'waiting' AND wait_name IS NULL\nORDER BY id\n",
            )
        ],
        paths=("flow-redrive-race",),
        points=10,
        store=POSTGRES,
    ),
    Mutant(
        "cancel-forgets-the-running",
        "a cancelled flow leaves alone what runs",
        [
            Edit(SQL, MEMBERS, MEMBERS.replace(", 'running'", "")),
            Edit(SQL, SETTLED, SETTLED.replace(", 'running'", "")),
        ],
        paths=("flow-cancel",),
        points=10,
        store=SQLITE,
    ),
    Mutant(
        "cancel-not-gone-on-with",
        "a flow whose canceller died goes on",
        [
            Edit(
                "worker/maintenance.py",
                "        if signs.flows or signs.cancels or signs.unlinked:\n",
                "        if signs.cancels or signs.unlinked:\n",
            ),
            Edit("worker/flow_maintenance.py", "        await self.continue_cancels()\n", ""),
        ],
        paths=("flow-cancel",),
        points=24,
    ),
    Mutant(
        "added-to-the-cancelled",
        "a job that ran on in a cancelled flow adds to it",
        [
            Edit(
                FINISH,
                "    closed = {flow for flow in flows if flow_states.get(flow, (True,"
                " False))[0]}\n",
                "    closed = {flow for flow in flows if flow not in flow_states}\n",
            )
        ],
        paths=("flow-cancel-late",),
        points=8,
    ),
    Mutant(
        "redriven-alone",
        "whoever is brought back leaves those dead that died of it",
        [
            Edit(
                OPERATE,
                "    wanted = sorted({*ids, *(id for (id,) in doomed)})\n",
                "    wanted = sorted({*ids, *(id for (id,) in doomed[:0])})\n",
            )
        ],
        paths=("flow-redrive",),
        points=8,
    ),
    Mutant(
        "cancel-untold",
        "who waits for a job that is cancelled does not hear of it",
        [Edit(OPERATE, "yield from notify_dependents([(id, State.CANCELLED)])\n", "pass\n")],
        paths=("flow-cancel-one",),
        points=8,
    ),
    Mutant(
        "expiry-untold",
        "who waits for a job that expires does not hear of it",
        [
            Edit(
                "ops/duties.py",
                "notify_dependents([(id, State.CANCELLED) for id, tied in rows if tied])\n",
                "notify_dependents([])\n",
            )
        ],
        paths=("flow-expire",),
        points=6,
    ),
    Mutant(
        "pruned-too-early",
        "what a flow that goes on needs is removed",
        [
            Edit(
                "store/sql/duties.sql",
                "(j.flow IS NULL OR NOT EXISTS (SELECT 1 FROM ol.job AS o WHERE o.flow = j.flow\n",
                "(j.id IS NOT NULL OR NOT EXISTS (SELECT 1 FROM ol.job AS o WHERE o.flow ="
                " j.flow\n",
            ),
            Edit(
                "store/sql/duties.sql",
                "        AND (NOT j.tied OR NOT EXISTS (SELECT 1 FROM ol.edge AS e\n",
                "        AND (j.state <> 'none' OR NOT EXISTS (SELECT 1 FROM ol.edge AS e\n",
            ),
        ],
        paths=("flow-prune",),
        points=8,
    ),
    Mutant(
        "results-in-another-order",
        "a follower reads results in the order of their jobs, not in the order given",
        [
            Edit(
                SQL,
                "JOIN ol.job AS j ON j.id = e.job\nORDER BY e.place\n",
                "JOIN ol.job AS j ON j.id = e.job\nORDER BY e.job DESC\n",
            )
        ],
        campaign="flows",
        points=150,
    ),
    Mutant(
        "flow-key-ignored",
        "the key of a flow is not stored, so a second one is made",
        [
            Edit(
                "model/flow_builder.py",
                "part_of=into_flow, key=item.key",
                "part_of=into_flow, key=None",
            )
        ],
        paths=("flow-key",),
        points=8,
    ),
    Mutant(
        "flow-key-alone",
        "the key of a flow commits before its jobs do",
        [Edit("ops/enqueue.py", "    if tied or keyed:\n", "    if keyed:\n")],
        paths=("flow-key",),
        points=16,
    ),
    Mutant(
        "flow-key-twice",
        "a flow whose key is taken is inserted without it",
        [
            Edit(
                "ops/flow_keys.py",
                "        if id == flow.id:\n            continue",
                "        if True:\n            continue",
            )
        ],
        paths=("flow-key",),
        points=8,
        store=POSTGRES,
    ),
    Mutant(
        "flow-split",
        "a key on one job of a flow makes the rest of it a second time",
        [
            Edit(
                "model/flow_key.py",
                "    if problems:\n        raise",
                "    if False:\n        raise",
            )
        ],
        paths=("flow-split",),
        points=8,
    ),
]
