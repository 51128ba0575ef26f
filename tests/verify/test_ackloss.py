"""`outlast verify ackloss`: a sample of every commit of every path, and copies that fail it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from outlast.ops.claim import ClaimCursor, ClaimRequest
from outlast.ops.finish_and_claim import finish_and_claim
from outlast.store import open_store
from outlast.store.statements import queries
from outlast.verify.campaigns.ackloss import SWEEP_STATEMENTS
from outlast.verify.campaigns.network_campaign import proxied_url
from outlast.verify.faults.postgres_wire import (
    ClientMessages,
    CommitInspector,
    ServerMessages,
    hidden_write,
)
from outlast.verify.faults.proxy import Proxy
from tests.store.jobs import ending, put, take
from tests.support import Database, Processes
from tests.verify.running import all_paths, only, run, sampled_paths, start
from tests.verify.test_crash import left
from tools.mutants.mutation import POSTGRES, Edit, Mutant, RunOptions, copy_package, run_campaign

SILENT = {"start", "rollback", "not-yet", "purge-changed"}  # they commit nothing
# Nor these, if somebody else's sweep came first: it takes back, prunes or ends what is theirs.
OTHERS = {*SWEEP_STATEMENTS, "audit", "poison", "flow-prune", "late-finish", "wrong-clock"}


@pytest.mark.slow
@pytest.mark.quiet
@pytest.mark.kinds("postgres")
@pytest.mark.parametrize(
    "here",
    [
        sampled_paths("postgres", half=1),
        pytest.param(all_paths("postgres"), marks=pytest.mark.campaign),
    ],
    ids=["sample", "all"],
)
def test_an_answer_that_is_lost_changes_nothing(
    processes: Processes, database: Database, here: list[str]
) -> None:
    """R004, R170: whatever was committed when its answer got lost is asked for again, and stands
    once: jobs, outcomes, follow-ups, records, events; and whoever asked is told the truth."""
    said = run(processes, "ackloss", database, "--seed", 1, "--points", len(here), *only(here))
    assert said["violations"] == 0, said["wrong"]
    assert set(said["paths"]) == set(here)
    silent = {name for name, row in said["paths"].items() if not row.get("lost")}
    assert silent >= SILENT & {*here}
    if busy := silent - OTHERS - SILENT:  # whose jobs somebody else took, on a busy machine
        points = ("--points", 2 * len(busy))
        again = run(processes, "ackloss", database, "--seed", 2, *points, *only(sorted(busy)))
        assert {name for name, row in again["paths"].items() if row.get("lost")} == busy
    assert said["lost"] >= len(here)
    assert left(database) == []


@pytest.mark.kinds("sqlite")
@pytest.mark.parametrize("campaign", ["ackloss", "netsplit"])
def test_a_file_has_no_network(processes: Processes, database: Database, campaign: str) -> None:
    """STYLE: what a dialect cannot do is a clear error."""
    refused = start(processes, campaign, "--url", database.url)
    assert refused.wait(30.0) == 2
    assert "is not reached over a network" in refused.output()
    assert left(database) == []


@pytest.mark.kinds("sqlite")
def test_who_insists_on_encryption_is_not_overheard(
    processes: Processes, database: Database
) -> None:
    """R198: a URL that demands it is refused, not weakened."""
    url = "postgresql://postgres:s3cret@127.0.0.1:1/nowhere?sslmode=verify-full"
    refused = start(processes, "ackloss", "--url", url)
    assert refused.wait(30.0) == 2
    assert "sslmode=verify-full" in refused.output()
    assert "s3cret" not in refused.output()


BROKEN = [
    Mutant(
        "what is sent again is another job",
        "see the edit",
        [
            Edit(
                "store/base.py",
                "        return self.retrying(lambda: self.run_once(operation(*args, **kwargs)))\n",
                "        from ..model.ids import new_job_id\n\n"
                "        def anew() -> T:\n"
                "            for job in args[0] if operation.__name__ == 'enqueue' else ():\n"
                "                object.__setattr__(job, 'id', new_job_id())\n"
                "            return self.run_once(operation(*args, **kwargs))\n\n"
                "        return self.retrying(anew)\n",
            )
        ],
        campaign="ackloss",
        paths=("bulk",),
        points=4,
        store=POSTGRES,
    ),
    Mutant(
        "a finish that is sent again is called lost",
        "see the edit",
        [
            Edit(
                "ops/finish.py",
                "        elif state is not None and _was_ours(transition, state, outcome):\n",
                "        elif state is not None and outcome == 'nobody':\n",
            )
        ],
        campaign="ackloss",
        paths=("finish-succeeded", "finish-failed"),
        points=4,
        store=POSTGRES,
    ),
    Mutant(
        "events have no number",
        "see the edit",
        [
            Edit(
                "store/sql/operate.sql",
                "SELECT t.job, j.attempt, t.fence, t.n, t.kind",
                "SELECT t.job, j.attempt, t.fence, NULL, t.kind",
            )
        ],
        campaign="ackloss",
        paths=("report",),
        points=4,
        store=POSTGRES,
    ),
    Mutant(
        "nobody asks again",
        "see the edit",
        [
            Edit(
                "store/base.py",
                "return 0.0 if tried <= 2 and time.monotonic() < until else None",
                "return None",
            )
        ],
        campaign="ackloss",
        paths=("enqueue", "claim"),
        points=4,
        store=POSTGRES,
    ),
]


@pytest.mark.kinds("postgres")
@pytest.mark.parametrize("mutant", BROKEN, ids=lambda mutant: mutant.name)
def test_a_copy_that_guesses_or_repeats_is_noticed(
    mutant: Mutant, database: Database, tmp_path: Path
) -> None:
    """R207"""
    copy, options = copy_package(mutant, tmp_path), RunOptions(url=database.url)
    found = run_campaign(copy, mutant.campaign_run, options, first=True)
    assert found["violations"] > 0, found


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_commits_are_seen_however_the_answer_is_cut(size: int) -> None:
    said = wire(
        [
            (b"C", b"SELECT 1\0"), (b"Z", b"I"),  # a read
            (b"C", b"UPDATE 0\0"), (b"Z", b"I"),  # nothing changed
            (b"C", b"INSERT 0 2\0"), (b"Z", b"I"),
            (b"C", b"BEGIN\0"), (b"C", b"UPDATE 1\0"), (b"Z", b"T"),
            (b"C", b"DELETE 3\0"), (b"Z", b"T"), (b"C", b"COMMIT\0"), (b"Z", b"I"),
            (b"C", b"BEGIN\0"), (b"C", b"UPDATE 1\0"), (b"Z", b"T"),
            (b"C", b"ROLLBACK\0"), (b"Z", b"I"),
            (b"C", b"UPDATE 1\0"), (b"E", b"SERROR\0\0"), (b"Z", b"I"),  # all of a pipeline undone
            (b"C", b"CREATE TABLE\0"), (b"Z", b"I"),
        ]
    )  # fmt: skip
    answers = ServerMessages()
    seen = [commit for cut in cuts(said, size) for commit in answers.commits(cut)]
    assert seen == ["INSERT 0 2", "UPDATE 1, DELETE 3", "CREATE TABLE"]


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_a_write_in_a_with_clause_is_seen_by_its_text(size: int) -> None:
    """R170: its tag is SELECT; the text comes once, then its name. A failed pipeline does not shift
    what follows it."""
    hides, reads = b"WITH a AS (\n UPDATE t SET n = 1 RETURNING 1) SELECT 1 FROM a", b"SELECT 1"
    run = [(b"B", b"\0s1\0"), (b"E", b"\0" * 5)]
    look = [(b"B", b"\0s2\0"), (b"E", b"\0" * 5)]
    asked = (8).to_bytes(4, "big") + b"\0\3\0\0" + wire(
        [
            (b"p", b"s3cret\0"),
            (b"P", b"s1\0" + hides + b"\0\0\0"), *run, (b"S", b""),
            (b"P", b"s2\0" + reads + b"\0\0\0"), *look, *run, *look, (b"S", b""),  # fails at once
            *look, (b"S", b""),
            *look, *run, (b"S", b""),
            (b"Q", hides + b"\0"),
            (b"Q", reads + b"\0"),
        ]
    )  # fmt: skip
    said = wire(
        [
            (b"R", b"\0" * 4), (b"Z", b"I"),
            (b"C", b"SELECT 1\0"), (b"Z", b"I"),
            (b"E", b"SERROR\0\0"), (b"Z", b"I"),
            (b"C", b"SELECT 1\0"), (b"Z", b"I"),
            (b"C", b"SELECT 2\0"), (b"C", b"SELECT 0\0"), (b"Z", b"I"),
            (b"C", b"SELECT 4\0"), (b"Z", b"I"),
            (b"C", b"SELECT 5\0"), (b"Z", b"I"),
        ]
    )  # fmt: skip
    client = ClientMessages()
    answers = ServerMessages(client)
    for cut in cuts(asked, size):
        client.read(cut)
    seen = [commit for cut in cuts(said, size) for commit in answers.commits(cut)]
    assert seen == ["SELECT 1 with UPDATE", "SELECT 0 with UPDATE", "SELECT 4 with UPDATE"]


def wire(messages: list[tuple[bytes, bytes]]) -> bytes:
    return b"".join(kind + (len(body) + 4).to_bytes(4, "big") + body for kind, body in messages)


def cuts(said: bytes, size: int) -> list[bytes]:
    return [said[start : start + size] for start in range(0, len(said), size)]


def test_every_statement_that_hides_a_write_is_known() -> None:
    """R170: no tag shows these. One that ends in SELECT and is not among them only reads."""
    write = re.compile(r"(?<!FOR )(?<!KEY )\b(?:INSERT\s+INTO|UPDATE|DELETE\s+FROM|MERGE)\b")
    found = set()
    for name, query in queries("postgres", "outlast").all().items():
        if write.search(query.sql) and _ends_in_select(query.sql):
            assert hidden_write(query.sql), name
            found.add(name)
    assert found >= {"succeed", "succeed_and_claim_on", "assign_positions", "move_to_past"}


def _ends_in_select(sql: str) -> bool:
    """Whether the first verb outside all parentheses is SELECT."""
    depth = 0
    for found in re.finditer(r"'[^']*'|[()]|\b(?:SELECT|INSERT|UPDATE|DELETE|MERGE)\b", sql):
        depth += {"(": 1, ")": -1}.get(found[0], 0)
        if depth == 0 and found[0].isalpha():
            return found[0] == "SELECT"
    return False


@pytest.mark.kinds("postgres")
def test_the_answer_of_a_turn_is_among_those_that_get_lost(database: Database) -> None:
    """R004, R170: `succeed_and_claim_on` writes twice, commits by itself and ends in SELECT."""
    direct = open_store(database.url, database.schema)
    put(direct.run, 6)
    held = take(direct.run, 1)
    commits = CommitInspector()
    with Proxy.before(database.url) as proxy:
        proxy.inspect = commits
        store = open_store(proxied_url(database.url, proxy), database.schema)
        for lost in (False, False, True):
            commits.arm(lambda: True, target=int(lost))
            here = ClaimCursor(held[0].priority, held[0].run_at, held[0].id)
            finished, held = store.run(finish_and_claim, [ending(held[0])], wanted(here))
            assert [commits.commits[0], commits.lost] == ["SELECT 1 with UPDATE", lost]
            assert len(held) == 1 and not finished.lost
        store.close()
    direct.close()
    states = sorted(state for (state,) in database.rows("SELECT state FROM job"))
    assert states == ["ready"] + 2 * ["running"] + 3 * ["succeeded"]  # one was claimed in vain


def wanted(cursor: ClaimCursor | None = None) -> ClaimRequest:
    return ClaimRequest("w1", "default", 1, 60.0, promote=False, cursor=cursor)
