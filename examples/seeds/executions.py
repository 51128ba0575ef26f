"""Executions that end: files of an organisation, one terminal status, and a callback that arrives.

    python executions.py [--url URL] [--seed N] [--json] [--kill WHAT] [--files 60]

Four organisations each have 60 files read, in batches. After an execution's last file a status is
written, once, and a status API is told of it: one that answers, one that answers by 500, one by
`false`, and one that is away. Killed are the starter around its COMMIT, readers in a batch and at
random, all processes after the last file's COMMIT, the settler around its COMMIT, the teller after
the API has answered; and a settler that was paused for longer than its lease comes back.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from inside import execute, folder, note, notes, own_tables, point, query, transaction
from processes import Process, answers, free_port
from stage import Stage, main

from outlast import (
    BatchContext,
    BatchFailed,
    Breaker,
    Context,
    DependencyDown,
    InvalidOption,
    Outlast,
    Permanent,
    Retry,
    TenantRequired,
    group,
)

ORGANISATIONS, BATCH = ("acme", "bolt", "corp", "dune"), 30
INCOMPLETE = "dune"  # one of its files is missing
API, FILES = "SEED_STATUS_API", "SEED_FILES"

ol = Outlast(tenant_required=True)


# The program: start, read, settle, tell


def start(conn: Any, organisation: str, number: int = 1) -> None:
    """An execution and all its jobs, in the caller's transaction."""
    name = f"{organisation}-{number}"
    execute(conn, "INSERT INTO execution VALUES (?, ?, 'running', 0)", organisation, number)
    files = [str(folder() / organisation / f"{n}.txt") for n in range(int(os.environ[FILES]))]
    reading = group(*(read.using(tenant=organisation).job(file) for file in files))
    ending = settle.using(tenant=organisation).job(name)
    ol.enqueue(reading.then(ending, when="finished"), conn=conn)


def start_one(organisation: str) -> None:
    with transaction() as conn:
        start(conn, organisation)
        point("starter before its commit")
    point("starter after its commit")


def restart(organisation: str) -> int:
    """The number of the execution that runs now. A finished one stays as it ended."""
    with transaction() as conn:  # the lock on the first row makes restarts take turns
        lock = "UPDATE execution SET settled = settled WHERE organisation = ? AND number = 1"
        execute(conn, lock, organisation)
        latest = "SELECT number, status FROM execution WHERE organisation = ? ORDER BY number DESC"
        number, status = execute(conn, latest, organisation)[0]
        if status != "running":
            number += 1
            start(conn, organisation, number)
    return int(number)


@ol.task(queue="read", batch=BATCH, wait=0.05, max_crashes=100)
def read(files: list[str], ctx: BatchContext) -> None:
    missing: dict[int, Permanent] = {}
    for n, file in enumerate(files):
        if n == len(files) // 2:
            point("reader in a batch")
        try:
            Path(file).read_text()
        except FileNotFoundError:
            missing[n] = Permanent(f"{Path(file).name} is missing")
        note("read", ctx.items[n].job.id)
    if missing:
        raise BatchFailed(missing)  # only these; the others are read


@ol.task(queue="settle", max_crashes=100)
def settle(execution: str, ctx: Context) -> str:
    """Write the terminal status, and make the callback a job, both with this job's end.

    No guard of its own in the UPDATE: an attempt that lost its claim cannot commit."""
    failed = sum(job.state != "succeeded" for job in ctx.prerequisites())
    status = "failed" if failed else "completed"
    pause("settler paused")
    ctx.enqueue(tell.using(tenant=ctx.job.tenant).job(execution, status))
    organisation, number = execution.split("-")
    with ctx.completing(status) as conn:
        own_tables(conn)
        change = "UPDATE execution SET status = ?, settled = settled + 1"
        where = "WHERE organisation = ? AND number = ?"
        execute(conn, f"{change} {where}", status, organisation, int(number))
        point("settler before its commit")
    point("settler after its commit")
    return status


@ol.task(
    queue="tell", max_crashes=100,
    retry=Retry(max_attempts=20, base=0.1, cap=0.5),
    breaker=Breaker(probe_first=0.1, probe_cap=0.5),
)  # fmt: skip
def tell(execution: str, status: str, ctx: Context) -> None:
    """Tell the status API. Its id is the same on every attempt."""
    request = Request(
        f"{os.environ[API]}/{ctx.job.tenant}/{execution}",
        json.dumps({"status": status}).encode(),
        {"content-type": "application/json", "idempotency-key": ctx.job.id},
        method="PUT",
    )
    try:
        with urlopen(request, timeout=5) as response:
            answer = json.load(response)
    except HTTPError:
        raise  # it is there, and could not do it: retried, by the budget
    except OSError as error:
        raise DependencyDown("the status API is away") from error  # costs no attempt
    if answer is not True:
        raise RuntimeError(f"the status API answered {answer!r}")
    point("teller after the answer")


def pause(name: str) -> None:
    """If this point is armed, the process hangs here, as in a long pause of its machine."""
    with suppress(FileNotFoundError):
        (folder() / f"pause {name}").unlink()
        note("paused", os.getpid())
        with transaction():
            pass  # until no other thread of this process is in one: paused, it would keep the lock
        os.kill(os.getpid(), signal.SIGSTOP)


# The accident, replayed


class Executions:
    """The scenes, in order."""

    def __init__(self, stage: Stage) -> None:
        self.stage, self.files = stage, stage.options.files
        self.port = free_port()
        os.environ[FILES] = str(self.files)
        os.environ[API] = f"http://127.0.0.1:{self.port}"
        query(
            "CREATE TABLE execution (organisation TEXT, number INTEGER, status TEXT NOT NULL,"
            " settled INTEGER NOT NULL, PRIMARY KEY (organisation, number))"
        )
        for organisation in ORGANISATIONS:
            (folder() / organisation).mkdir()
            for n in range(self.files):
                (folder() / organisation / f"{n}.txt").write_text("words " * n)
        self.missing = folder() / INCOMPLETE / f"{stage.random.randrange(self.files)}.txt"
        self.missing.unlink()

    # What can be seen

    def executions(self) -> dict[str, tuple[str, int]]:
        """Status and number of its writes, of each execution."""
        rows = query("SELECT organisation, number, status, settled FROM execution")
        return {f"{name}-{number}": (status, settled) for name, number, status, settled in rows}

    def told(self, execution: str) -> list[list[str]]:
        """What the API was told about an execution: status, whether it was kept, and the id."""
        return [words[1:] for words in notes("status") if words[0] == execution]

    # Scenes

    def refusal(self) -> None:
        """A job that names no organisation is refused, and so is everything beside it."""
        refused = 0
        for nobody in ("", None):
            with suppress(TenantRequired, InvalidOption), transaction() as conn:
                refused += 1
                execute(conn, "INSERT INTO execution VALUES ('nobody', 1, 'running', 0)")
                some = read.using(tenant="acme").job("a.txt"), read.using(tenant=nobody).job("b")
                ol.enqueue(group(*some).then(settle.using(tenant="acme").job("x-1")), conn=conn)
                refused -= 1
        self.stage.equal("refused without an organisation", refused, 2)
        self.stage.equal("jobs of refused executions", sum(ol.counts().values()), 0)
        self.stage.equal("refused executions stored", len(self.executions()), 0)

    def starting(self) -> None:
        """The starter dies before and after its COMMIT: nothing, or all of it."""
        program = (sys.executable, "-c", "import executions; executions.start_one('acme')")
        if self.stage.chosen("starter"):
            for where, executions in (("before", 0), ("after", 1)):
                point = f"starter {where} its commit"
                self.stage.die_at(point, act=lambda: self.stage.start("starter", *program))
                jobs = sum(ol.counts().values())
                known = [len(self.executions()), jobs]
                wanted = [executions, executions * (self.files + 1)]
                self.stage.equal(f"execution and jobs, {where} its commit", known, wanted)
        else:
            start_one("acme")
        for organisation in ORGANISATIONS[1:]:
            start_one(organisation)

    def reading(self) -> None:
        """Readers die in a batch and at random; after the last file's COMMIT, all are dead."""
        readers = [self.stage.worker(f"reader-{n}", "--queues", "read") for n in (1, 2)]
        self.die_at("reader", "in a batch", *readers)
        kills = 2 if self.stage.chosen("reader") else 0
        for some in sorted(self.stage.random.sample(range(self.files // 2, 3 * self.files), kills)):
            self.stage.wait(lambda: len(notes("read")) >= some, f"{some} files")  # noqa: B023
            self.stage.kill(victim := self.stage.random.choice(readers), "reader at random")
            victim.restart()
        self.wait_final("read")
        for reader in readers:
            self.stage.kill(reader, "reader after the last commit")
        runs = [job for (job,) in notes("read")]
        self.stage.equal("files read", len(set(runs)), len(ORGANISATIONS) * self.files)
        self.stage.show("files read again after a kill", len(runs) - len(set(runs)))
        running = sum(status == "running" for status, _ in self.executions().values())
        self.stage.equal("executions that nobody works on", running, len(ORGANISATIONS))

    def settling(self) -> None:
        """Workers start, and the rest happens by itself. The settler dies; the API is away."""
        if self.stage.chosen("zombie"):
            (folder() / "pause settler paused").touch()
        flags = ("--queues", "settle,tell", "--concurrency", 1)
        self.workers = [self.stage.worker(f"settler-{n}", *flags) for n in (1, 2)]
        if self.stage.chosen("zombie"):
            self.stage.wait(lambda: notes("paused"), "a settler is paused")
        zombies = [one for one in self.workers if [str(one.pid)] in notes("paused")]
        rest = [one for one in self.workers if one not in zombies]
        for where in ("before its commit", "after its commit"):
            self.die_at("settler", where, *rest)
        self.wait_final("settle")
        for zombie in zombies:  # after the end of its lease: another worker has settled it
            zombie.signal(signal.SIGCONT)
        self.stage.show("settlers that came back too late", len(zombies))
        ended = [status for status, _ in self.executions().values() if status != "running"]
        self.stage.equal("terminal, with the API away", len(ended), len(ORGANISATIONS))
        self.stage.equal("told, with the API away", len(notes("status")), 0)

    def telling(self) -> None:
        """The API comes, dies and comes again; the teller dies after an answer."""
        api = self.stage.start(
            "api", sys.executable, Path(__file__).parent / "status_api.py", self.port
        )
        self.die_at("teller", "after the answer", *self.workers)
        if self.stage.chosen("api"):
            self.stage.kill(api, "status API")
            api.restart()
        self.stage.wait(lambda: answers(self.port), "the status API answers")
        self.wait_final("tell")
        self.check(1)

    def restarting(self) -> None:
        """A file that succeeds late changes no status; restarts make one new execution."""
        (dead,) = ol.jobs(queue="read", state="dead")
        self.missing.write_text("late words")
        ol.retry(dead.id)
        reader = self.stage.worker("reader-3", "--queues", "read")
        self.stage.wait(lambda: ol.job(dead.id).final, "the late file is read")
        self.wait_final("settle", "tell")
        name = f"{INCOMPLETE}-1"
        self.stage.equal("status after a late success", self.executions()[name][0], "failed")
        self.stage.equal(
            "statuses told of it", sorted({told[0] for told in self.told(name)}), ["failed"]
        )
        with ThreadPoolExecutor(4) as pool:
            made = set(pool.map(restart, [INCOMPLETE] * 4))
        self.stage.equal("executions that four restarts made", sorted(made), [2])
        self.wait_final("read", "settle", "tell")
        reader.kill()
        statuses = [self.executions()[f"{INCOMPLETE}-{n}"][0] for n in (1, 2)]
        self.stage.equal("statuses, old and new", statuses, ["failed", "completed"])
        self.check(2)

    # Parts of scenes

    def check(self, last: int) -> None:
        """One terminal status each, told under one id, never another one after it."""
        known = self.executions()
        told = {name: self.told(name) for name in known}
        kept = [name for name, calls in told.items() if any(one[1] == "kept" for one in calls)]
        self.stage.equal("executions told", len(kept), len(ORGANISATIONS) + last - 1)
        self.stage.show("calls of the status API", sum(map(len, told.values())))
        wrong = [name for name in known if {one[0] for one in told[name]} != {known[name][0]}]
        self.stage.equal("told another status", len(wrong), 0)
        ids = [len({one[2] for one in calls}) for calls in told.values()]
        self.stage.equal("told under a second id", sum(ids) - len(ids), 0)
        settled = [writes for _, writes in known.values()]
        self.stage.equal("terminal statuses written", sum(settled), len(known))
        self.stage.equal("callbacks dead", len(ol.jobs(queue="tell", state="dead")), 0)

    def wait_final(self, *queues: str) -> None:
        """Until all jobs of these queues have ended, one after the other. One query sees all states
        of a queue at one moment: a retry goes back from running to scheduled."""
        for queue in queues:
            self.stage.wait(
                lambda queue=queue: all(job.final for job in ol.jobs(queue=queue)),  # type: ignore[misc]
                f"the jobs of {queue} have ended",
            )

    def die_at(self, who: str, where: str, *processes: Process) -> None:
        if self.stage.chosen(who):
            self.stage.die_at(f"{who} {where}", *processes)


def play(stage: Stage) -> None:
    os.environ |= {"OUTLAST_LEASE": "2", "OUTLAST_RECLAIM_EVERY": "0.2", "OUTLAST_POLL_MAX": "0.2"}
    ol.migrate()
    scenes = Executions(stage)
    scenes.refusal()
    scenes.starting()
    scenes.reading()
    scenes.settling()
    scenes.telling()
    scenes.restarting()


if __name__ == "__main__":
    size = {"type": int, "default": 60, "help": "of each organisation; default: %(default)s"}
    main("executions", ["starter", "reader", "settler", "zombie", "teller", "api"], files=size)
