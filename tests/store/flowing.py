"""Short ways to say what these tests do with jobs that wait for each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from outlast.model.claim import Claim
from outlast.model.flow_builder import build_jobs
from outlast.model.job import Job
from outlast.model.lifecycle import Outcome
from outlast.model.options import Options
from outlast.model.task import Call, TaskDefinition
from outlast.ops import report
from outlast.ops.enqueue import enqueue
from outlast.ops.finish import finish
from outlast.ops.flow_report import prerequisites
from tests.store.jobs import end, ending, table, take
from tests.support import Database

Run = Callable[..., Any]


def work(n: int = 0) -> int:
    return n


WORK = TaskDefinition("work", work)


def call(n: int = 0, **said: Any) -> Call:
    """One job to be, with a number to know it by."""
    return Call(WORK, Options(**said), (n,), {})


def calls(number: int, **said: Any) -> list[Call]:
    return [call(n, **said) for n in range(number)]


def lay(run: Run, *items: Any) -> list[Job]:
    """Enqueue calls, groups, chains and flows."""
    made: list[Job] = run(enqueue, build_jobs(items))
    return made


def number(job: Job | Claim) -> int:
    """What it is known by."""
    args = job.args if isinstance(job, Job) else __import__("json").loads(job.args)
    return int(next(iter(args.values())) if isinstance(args, dict) else args[0])


def state(run: Run, *jobs: Job | Claim) -> list[str]:
    return [str(run(report.job, one.id).state) for one in jobs]


def end_all(run: Run, outcome: Outcome | str = "succeeded", limit: int = 1000) -> int:
    """Claim and end whatever is ready now, and what becomes ready by that; each with its own id as
    the result."""
    ended = 0
    while held := take(run, limit):
        run(finish, [ending(one, outcome, **_result(one, outcome)) for one in held])
        ended += len(held)
    return ended


def end_one(run: Run, outcome: Outcome | str = "succeeded") -> Claim:
    """Claim the next one and end it."""
    (held,) = take(run)
    end(run, held, outcome, **_result(held, outcome))
    return held


def _result(held: Claim, outcome: Outcome | str) -> dict[str, Any]:
    return {"result": f'"{held.id}"'} if outcome == "succeeded" else {}


def results(run: Run, follower: Job | Claim) -> list[Any]:
    """What a follower would read, a page at a time."""
    place, found = -1, []
    while page := run(prerequisites, follower.id, place, 200):
        found += [job.result for _, job in page]
        place = page[-1][0]
    return found


def left(database: Database) -> dict[str, int]:
    """How many rows there are of each kind that comes with flows."""
    names = ("job", "edge", "flow")
    return {
        name: database.rows(f"SELECT count(*) FROM {table(database, name)}")[0][0] for name in names
    }


def stuck(database: Database) -> int:
    """Jobs that wait although nothing that they come after is still to end (past the product)."""
    job, edge = table(database, "job"), table(database, "edge")
    query = (
        f"SELECT count(*) FROM {job} AS f WHERE f.state = 'waiting' AND f.wait_name IS NULL"
        " AND NOT EXISTS ("
        f"SELECT 1 FROM {edge} AS e JOIN {job} AS p ON p.id = e.job WHERE e.follower = f.id"
        " AND p.state IN ('waiting', 'scheduled', 'ready', 'running'))"
    )
    return int(database.rows(query)[0][0])
