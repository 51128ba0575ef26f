"""`outlast demo`: shows what is promised, notices when it is broken, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from outlast import Job, Outlast, State
from outlast.demo.check import DemoVerdict, judge
from outlast.demo.run import busy_pids
from outlast.demo.tasks import DONE, FAILED, STARTED
from outlast.ops import workers as worker_ops
from outlast.ops.claim import ClaimRequest, claim
from outlast.verify.ledger import LedgerEntry
from tests.support import Postgres, Process, Processes, eventually
from tests.support.processes import alive
from tests.support.tiers import slow_but


@pytest.fixture
def run(processes: Processes, tmp_path: Path) -> Callable[..., Process]:
    """Starts the demo in an empty folder, with a folder of its own for temporary files."""
    here, temporary = tmp_path / "here", tmp_path / "temporary"
    here.mkdir()
    temporary.mkdir()

    def start(*args: object) -> Process:
        env = {"TMPDIR": str(temporary), "COLUMNS": "100", "OUTLAST_URL": "sqlite:///not-this.db"}
        return processes.python("outlast", "demo", *args, env=env, cwd=here)

    return start


def test_who_is_busy_is_known_at_once(tmp_path: Path) -> None:
    """R186: the demo kills those with work in their hands, whose cards do not say so yet."""
    with Outlast(f"sqlite:///{tmp_path}/demo.db") as ol:
        work = ol.task(name="work")(lambda: None)
        for pid in (1, 2):
            card = ol.worker().registration_row() | {"id": f"w{pid}", "pid": pid}
            ol.store.run(worker_ops.register, card)
        work.enqueue()
        ol.store.run(claim, ClaimRequest("w1", "default", 1, 60.0))
        assert busy_pids(ol) == {1}


def leftovers(tmp_path: Path) -> list[str]:
    return [str(path) for name in ("here", "temporary") for path in (tmp_path / name).iterdir()]


def workers_of(demo: Process) -> list[int]:
    """Its children, by what the kernel says (Linux)."""
    children = Path(f"/proc/{demo.pid}/task/{demo.pid}/children")
    return [int(pid) for pid in children.read_text().split()] if children.exists() else []


def test_the_demo_kills_workers_and_loses_nothing(
    run: Callable[..., Process], tmp_path: Path
) -> None:
    """R186: on the embedded default, without any set-up, in plain lines where no terminal is."""
    demo = run("--jobs", 200, "--workers", 3)
    output = demo.succeed(90.0)
    figures = dict(re.findall(r"^(\w[\w ]+?) +([\d.,]+)(?: s)?  ", output, re.M))
    assert figures["enqueued"] == "200"
    assert figures["succeeded"] == "240"
    zeros = ("lost", "dead", "stuck", "accepted twice", "unproven")
    assert [figures[name] for name in zeros] == ["0"] * 5
    assert int(figures["kills survived"]) >= 1
    assert re.search(r"^ +\d+\.\d s  [\d,]+ of [\d,]+ succeeded, \d+ kills$", output, re.M)
    assert "How this was checked" in output
    assert leftovers(tmp_path) == []


@pytest.mark.slow
def test_the_dashboard_shows_the_kills_of_the_demo(
    run: Callable[..., Process], tmp_path: Path
) -> None:
    """R186: while it runs; and nothing is left of it."""
    pytest.importorskip("uvicorn")
    demo = run("--serve", "--jobs", 200, "--workers", 2)
    address = eventually(
        lambda: re.search(r"Dashboard: (http://127\.0\.0\.1:\d+/recovery)", demo.output()),
        timeout=60, message=demo.output,
    )  # fmt: skip
    page = httpx.get(address[1], timeout=30, verify=False)
    assert page.status_code == 200 and "Recovery" in page.text
    demo.succeed(120.0)
    assert leftovers(tmp_path) == []


@pytest.mark.slow
def test_the_demo_on_postgres_drops_the_schema_it_made(
    run: Callable[..., Process], tmp_path: Path, postgres_server: Postgres
) -> None:
    demo = run("--jobs", 300, "--workers", 2, "--json", "--url", postgres_server.url())
    verdict = json.loads(demo.succeed(90.0))
    assert (verdict["ok"], verdict["enqueued"], verdict["succeeded"]) == (True, 300, 360)
    assert verdict["kills"] >= 1
    if verdict["taken_over"]:
        assert 0 < verdict["recovery"]["p50"] <= verdict["recovery"]["p99"]
    assert schemas(postgres_server) == []
    assert leftovers(tmp_path) == []


@pytest.mark.slow
def test_a_job_that_vanishes_is_noticed(
    run: Callable[..., Process], postgres_server: Postgres
) -> None:
    """A demo that cannot fail would prove nothing."""
    demo = run("--jobs", 100, "--workers", 2, "--json", "--url", postgres_server.url())
    [schema] = eventually(lambda: schemas(postgres_server), 30.0)
    table = f"{schema}.job"
    eventually(
        lambda: (
            postgres_server.execute(
                f"DELETE FROM {table} WHERE state = 'ready' AND id = (SELECT max(id::text)::uuid"
                f" FROM {table} WHERE state = 'ready' AND task = 'render') RETURNING id"
            )
            if postgres_server.execute(f"SELECT to_regclass('{table}')") != [(None,)]
            else None
        ),
        30.0,
    )
    assert demo.wait(90.0) == 1
    verdict = json.JSONDecoder().raw_decode(demo.output())[0]
    assert (verdict["ok"], verdict["lost"]) == (False, 1)
    assert "a guarantee was broken" in demo.output()


@pytest.mark.slow
def test_what_is_not_done_in_time_is_stuck(run: Callable[..., Process], tmp_path: Path) -> None:
    demo = run("--jobs", 2000, "--seconds", 1, "--json")
    assert demo.wait(60.0) == 1
    verdict = json.JSONDecoder().raw_decode(demo.output())[0]
    assert verdict["stuck"] > 1000
    assert "see --seconds" in demo.output()
    assert verdict["lost"] == 0
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize(
    "number", slow_but([signal.SIGTERM], [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
)
def test_the_workers_end_with_the_demo(
    run: Callable[..., Process], tmp_path: Path, number: int
) -> None:
    """R189: however it ends; asked politely, it also takes its files away."""
    demo = run("--jobs", 5000, "--workers", 2)
    workers = eventually(lambda: len(pids := workers_of(demo)) == 2 and pids, 30.0)
    eventually(lambda: "1 kills" in demo.output(), 30.0, message=demo.output)
    workers += workers_of(demo)
    os.kill(demo.pid, number)
    assert demo.wait(20.0) != 0
    eventually(lambda: not any(alive(pid) for pid in workers), 10.0)
    if number != signal.SIGKILL:
        assert leftovers(tmp_path) == []


def test_a_sqlite_url_is_refused(run: Callable[..., Process], tmp_path: Path) -> None:
    demo = run("--url", "sqlite:///mine.db")
    assert demo.wait(30.0) == 1
    assert "creates its own file" in demo.output()
    assert leftovers(tmp_path) == []


@pytest.mark.campaign
def test_the_demo_as_it_is_takes_half_a_minute(run: Callable[..., Process]) -> None:
    """R186: a few thousand jobs, four workers, a kill every second."""
    verdict = json.loads(run("--json").succeed(120.0))
    assert (verdict["ok"], verdict["succeeded"]) == (True, 3600)
    assert verdict["kills"] >= 10
    assert verdict["seconds"] < 60


class TestCheck:
    """The comparison itself, on a small made-up history."""

    def test_a_true_history_is_accepted(self) -> None:
        verdict = self.judge()
        assert verdict.ok
        assert (verdict.enqueued, verdict.follow_ups, verdict.succeeded) == (3, 1, 4)
        assert (verdict.attempts, verdict.repeated, verdict.failed) == (6, 2, 1)
        assert (verdict.kills, verdict.taken_over) == (1, 1)
        assert verdict.recovery == [2.0]
        assert verdict.recovered_within(0.5) == verdict.recovered_within(0.99) == 2.0

    @pytest.mark.parametrize(
        ("wrong", "change"),
        [
            ("lost", lambda jobs, seen: jobs.pop("a")),
            ("dead", lambda jobs, seen: end(jobs, "a", State.DEAD)),
            ("stuck", lambda jobs, seen: end(jobs, "a", State.SCHEDULED)),
            ("accepted_twice", lambda jobs, seen: jobs.update(r2=job("r2", "receipt", 3, 1))),
            ("unproven", lambda jobs, seen: jobs.pop("r")),
            ("unproven", lambda jobs, seen: seen.remove(LedgerEntry(DONE, "a", 2, None, 12, 5.5))),
            ("unproven", lambda jobs, seen: end(jobs, "a", State.SUCCEEDED, result=1)),
        ],
    )
    def test_whatever_is_wrong_is_noticed(self, wrong: str, change: Callable[..., Any]) -> None:
        verdict = self.judge(change)
        assert getattr(verdict, wrong) == 1
        assert not verdict.ok

    def judge(self, change: Callable[..., Any] = lambda jobs, seen: None) -> DemoVerdict:
        jobs = {
            "a": job("a", "resize", 1, 2),
            "b": job("b", "deliver", 2, 2),
            "c": job("c", "order", 3, 1),
            "r": job("r", "receipt", 3, 1),
        }
        seen = [
            LedgerEntry(STARTED, "a", 1, None, 11, 1.0),  # killed at 3.0
            LedgerEntry(STARTED, "b", 1, None, 12, 1.0), LedgerEntry(FAILED, "b", 1, None, 12, 1.1),
            LedgerEntry(STARTED, "b", 2, None, 12, 1.3), LedgerEntry(DONE, "b", 2, None, 12, 1.4),
            LedgerEntry(STARTED, "c", 1, None, 12, 2.0), LedgerEntry(DONE, "c", 1, None, 12, 2.1),
            LedgerEntry(STARTED, "r", 1, None, 12, 2.2), LedgerEntry(DONE, "r", 1, None, 12, 2.3),
            LedgerEntry(STARTED, "a", 2, None, 12, 5.0), LedgerEntry(DONE, "a", 2, None, 12, 5.5),
        ]  # fmt: skip
        change(jobs, seen)
        return judge(["a", "b", "c"], jobs.values(), seen, {11: 3.0}, 6.0)


def job(id: str, task: str, n: int, result: int) -> Job:
    nothing: dict[str, Any] = dict.fromkeys(
        ("error", "run_at", "created_at", "started_at", "finished_at", "worker")
    )
    return Job(
        id=id, task=task, queue="default", state=State.SUCCEEDED, attempt=result, args={"n": n},
        result=result, tenant="default", **nothing,
    )  # fmt: skip


def end(jobs: dict[str, Job], id: str, state: State, result: int | None = None) -> None:
    jobs[id] = replace(jobs[id], state=state, result=result)


def schemas(server: Postgres) -> list[str]:
    query = "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'outlast\\_demo\\_%'"
    return [name for (name,) in server.execute(query)]
