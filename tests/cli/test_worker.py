"""`outlast worker` as a process: it works, and it leaves as it should."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from outlast import Outlast
from tests.cli.conftest import Commands, Program, patiently
from tests.support import Database, Processes
from tests.support.processes import alive


def test_a_worker_carries_out_what_was_enqueued(
    run: Commands, ol: Outlast, program: Program
) -> None:
    """R167: from the command line to the command line, on both databases."""
    id = run("enqueue", "add", "--args", '{"a": 2, "b": 3}').out.strip()
    dead = run("enqueue", "give_up", "--args", '{"why": "no way"}').out.strip()
    worker = program.worker(app="app")
    patiently(lambda: run("job", id, "--json").json["state"] == "succeeded", message=worker.output)
    assert run("job", id, "--json").json["result"] == ol.result(id, timeout=5) == 5
    patiently(lambda: ol.job(dead).state == "dead", message=worker.output)
    worker.terminate()
    assert worker.wait() == 0
    assert run("workers", "--json").json == []
    assert "Traceback" not in worker.output()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.kinds("sqlite")
def test_a_told_worker_lets_its_job_end_and_leaves_with_0(
    run: Commands, ol: Outlast, program: Program, tmp_path: Path, number: int
) -> None:
    """R182: nothing is lost, nothing is charged, and the exit code says that all went well."""
    release = tmp_path / "release"
    arguments = json.dumps({"file": str(release)})
    id = run("enqueue", "wait_for", "--queue", "slow", "--args", arguments).out.strip()
    worker = program.worker()
    patiently(lambda: ol.job(id).state == "running", message=worker.output)
    worker.signal(number)
    patiently(lambda: ol.workers()[0].state == "draining", message=worker.output)
    assert not worker.ended
    release.touch()
    assert worker.wait() == 0
    assert (ol.job(id).state, ol.job(id).attempt) == ("succeeded", 1)


def test_only_the_named_queues_are_served(run: Commands, ol: Outlast, program: Program) -> None:
    left = run("enqueue", "add", "--args", '{"a": 1}', "--queue", "other").out.strip()
    worker = program.worker("--queues", "mine, also")
    for queue in ("mine", "also"):
        id = run("enqueue", "add", "--args", '{"a": 1}', "--queue", queue).out.strip()
        patiently(lambda id=id: ol.job(id).state == "succeeded", message=worker.output)
    assert ol.job(left).state == "ready"
    assert "No live worker serves the queue 'other'" in run("job", left).out


def test_several_processes_work_and_leave_together(
    run: Commands, ol: Outlast, program: Program
) -> None:
    """R189: one command, a fleet; it ends when it is told to, and leaves nobody behind."""
    fleet = program.worker("--concurrency", "3", OUTLAST_PROCESSES="2")
    workers = patiently(lambda: len(ol.workers()) == 2 and ol.workers(), message=fleet.output)
    assert {worker.concurrency for worker in workers} == {3}
    pids = {worker.pid for worker in workers}
    assert fleet.pid not in pids
    id = run("enqueue", "add", "--args", '{"a": 1}').out.strip()
    patiently(lambda: ol.job(id).state == "succeeded", message=fleet.output)
    fleet.terminate()
    assert fleet.wait() == 0
    assert not any(alive(pid) for pid in pids)


@pytest.mark.kinds("sqlite")
def test_a_fleet_of_a_program_that_cannot_start_is_refused_at_once(program: Program) -> None:
    """Not by each of its processes, again and again."""
    fleet = program.worker("--processes", "3", app="app:missing")
    assert fleet.wait() == 1
    assert fleet.output().count("has no 'missing'") == 1


@pytest.mark.kinds("sqlite")
def test_log_lines_are_json_if_wanted(ol: Outlast, program: Program) -> None:
    worker = program.worker("--log-format", "json", "--log-level", "info", OUTLAST_LEESE="5")
    patiently(lambda: len(ol.workers()) == 1, message=worker.output)
    worker.terminate()
    assert worker.wait() == 0
    lines = [json.loads(line) for line in worker.output().splitlines()]
    assert any("concurrency=32" in line["message"] for line in lines)
    assert any("did you mean OUTLAST_LEASE?" in line["message"] for line in lines)


@pytest.mark.kinds("postgres")
def test_a_worker_waits_for_a_database_that_is_not_there_yet(
    program: Program, database: Database
) -> None:
    worker = program.worker(OUTLAST_URL="postgresql://u:hunter2@127.0.0.1:1/d")
    patiently(lambda: "next try in" in worker.output(), message=worker.output)
    assert not worker.ended
    worker.terminate()
    assert worker.wait() == 0
    assert "hunter2" not in worker.output()


@pytest.mark.kinds("sqlite")
@pytest.mark.parametrize("words", ["metrics and health on", "queues: all"])
def test_a_worker_that_says_it_has_started_is_stopped_and_not_killed(
    ol: Outlast, database: Database, processes: Processes, tmp_path: Path, words: str
) -> None:
    """R182: its handlers stand before its first word, for whoever waits for that to stop it."""
    write_early_stop(tmp_path, words)
    command = [sys.executable, "-m", "outlast", "worker", "early:ol", "--metrics-port", "0"]
    worker = processes.run(*command, env={"OUTLAST_URL": database.url}, cwd=tmp_path)
    assert worker.wait() == 0, worker.output()
    assert words in worker.output()


def write_early_stop(folder: Path, words: str) -> None:
    """An app whose process gets SIGTERM at the very log line."""
    (folder / "early.py").write_text(f"""
import logging, os, signal
from outlast import Outlast

ol = Outlast()

class StopAtFirstWord(logging.Handler):
    def emit(self, record):
        if {words!r} in record.getMessage():
            os.kill(os.getpid(), signal.SIGTERM)

for name in ("outlast", "outlast.worker", "outlast.metrics"):
    logging.getLogger(name).addHandler(StopAtFirstWord())
""")


@pytest.mark.kinds("sqlite")
def test_a_supervisor_that_says_it_has_started_is_stopped_and_not_killed(
    ol: Outlast, database: Database, processes: Processes, tmp_path: Path
) -> None:
    """R182"""
    write_early_stop(tmp_path, "metrics and health on")
    more = ["--metrics-port", "0", "--processes", "2"]
    command = [sys.executable, "-m", "outlast", "worker", "early:ol", *more]
    supervisor = processes.run(*command, env={"OUTLAST_URL": database.url}, cwd=tmp_path)
    assert supervisor.wait() == 0, supervisor.output()


@pytest.mark.kinds("sqlite")
def test_the_first_and_the_last_line_fit_a_screen(ol: Outlast, program: Program) -> None:
    """The first names what was changed, and not forty defaults; the last says what was done."""
    tasks = "".join(f"\n@ol.task\ndef task_{n:03}() -> None: ...\n" for n in range(100))
    (program.folder / "app.py").write_text(dedent(Program.SOURCE) + tasks)
    worker = program.worker("--until-idle")
    assert worker.wait() == 0
    first, *_, last = worker.output().splitlines()
    assert "queues: all, tasks: add, give_up, task_000, " in first
    assert "and 95 more, concurrency=32, lease=6.0, renew_every=0.3, poll_max=0.2" in first
    assert "audit_every" not in first
    assert "0 succeeded, 0 dead, 0 cancelled, 0 to be retried" in last
    assert max(len(first), len(last)) < 400


def test_an_isolated_task_runs_on_the_database_of_the_command_line(
    processes: Processes, tmp_path: Path
) -> None:
    """R012: although the code names another one, and the task's process reads the code, too."""
    (tmp_path / "shop.py").write_text(
        dedent("""
        from outlast import Context, Outlast

        ol = Outlast("sqlite:///code.db")

        @ol.task(isolated=True)
        def far(ctx: Context) -> str:
            return ctx.step("kept", str.upper, "done")
        """)
    )
    url = f"sqlite:///{tmp_path}/given.db"
    for words in (["enqueue", "far", "--app", "shop:ol"], ["worker", "shop:ol", "--until-idle"]):
        processes.python("outlast", *words, "--url", url, cwd=tmp_path).succeed()
    with Outlast(url) as given:
        assert [job.result for job in given.jobs()] == ["DONE"]
    assert not (tmp_path / "code.db").exists()
