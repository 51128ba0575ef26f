"""A fleet under one roof: restored when children die, stopped together, never orphaned."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import Database, Process, Processes, eventually
from tests.support.app import PATIENCE, SLACK, App
from tests.support.processes import alive, kill

SUPERVISE = """
import json, os, sys
from outlast.worker.logs import set_up
from outlast.worker.supervisor import supervise
set_up("info")
said = lambda instance, code: os.write(1, f"ended {-code}\\n".encode())  # whole, among others
sys.exit(supervise(json.loads(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), said))
"""

# Children that need no database: they write down that they are there, and what they are told.
CHILD = """
import os, signal, sys
def say(word):
    os.write(1, f"{word} {os.getpid()}\\n".encode())  # print cannot be interrupted by itself
def told(number, frame):
    say("told")
    if sys.argv[1] == "polite":
        sys.exit(0)
signal.signal(signal.SIGTERM, told)
say("here")
if sys.argv[1] == "broken":
    sys.exit(3)
if lifeline := os.environ.get("OUTLAST_LIFELINE"):
    os.read(int(lifeline), 1)  # like a worker, it does not outlive its supervisor
while not lifeline:
    signal.pause()
"""


class Fleet:
    """A supervisor process and what its children say."""

    def __init__(
        self, processes: Processes, command: list[str], count: int, grace: float, **env: str
    ) -> None:
        import json

        self.process: Process = processes.python(
            SUPERVISE, json.dumps(command), count, grace, env=env
        )

    def said(self, what: str) -> list[int]:
        """The process ids behind a word, in the order of the output."""
        return [int(pid) for pid in re.findall(rf"^{what} (\d+)", self.output(), re.M)]

    def living(self) -> set[int]:
        return {pid for pid in self.said("here") if alive(pid)}

    def wait_for(self, count: int, timeout: float = PATIENCE) -> set[int]:
        eventually(lambda: len(self.living()) == count, timeout, message=self.output)
        return self.living()

    def kill(self, pid: int) -> None:
        kill(pid)
        eventually(lambda: not alive(pid))

    def output(self) -> str:
        return self.process.output()


def fleet(processes: Processes, tmp_path: Path, kind: str, count: int, grace: float = 5.0) -> Fleet:
    script = tmp_path / "child.py"
    script.write_text(CHILD)
    return Fleet(processes, [sys.executable, "-S", str(script), kind], count, grace)


class TestRestart:
    def test_a_killed_child_is_replaced(self, processes: Processes, tmp_path: Path) -> None:
        """R189: and only that one."""
        running = fleet(processes, tmp_path, "polite", 3)
        first = running.wait_for(3)
        victim = min(first)
        running.kill(victim)
        eventually(lambda: len(running.said("here")) == 4, PATIENCE, message=running.output)
        assert first - {victim} < running.wait_for(3)
        assert running.said("ended") == [9], "whoever wants to know of a death is told"
        assert "died (signal 9); next start in" in running.output()

    def test_a_child_that_keeps_dying_is_started_ever_more_slowly_and_the_log_shows_it(
        self, processes: Processes, tmp_path: Path
    ) -> None:
        """R189: no storm of starts, and a crash loop that nobody can overlook."""
        running = fleet(processes, tmp_path, "broken", 2)
        pattern = r"worker 1 has died 3 times in \d+ s \(exit code 3\); next start in (\S+) s"
        eventually(lambda: re.search(pattern, running.output()), 20.0, message=running.output)
        found = re.findall(r"worker 1 .* start in (\S+) s", running.output())
        waits = [float(wait) for wait in found]
        assert waits == sorted(waits)
        assert waits[0] >= 0.7
        assert waits[2] >= 4.0
        assert len(running.said("here")) <= 8, "three starts of each, and one that may be under way"

    def test_a_command_that_cannot_be_started_is_no_end(
        self, processes: Processes, tmp_path: Path
    ) -> None:
        """R189: it is tried again like a child that died."""
        program = tmp_path / "later"
        running = Fleet(processes, [str(program)], 1, 1.0)
        eventually(lambda: "cannot be started" in running.output(), message=running.output)
        program.write_text(f"#!/bin/sh\nexec {sys.executable} -c 'print(\"here 1\")'\n")
        program.chmod(0o755)
        eventually(lambda: "here 1" in running.output(), message=running.output)

    @pytest.mark.campaign
    def test_a_hundred_kills_leave_the_fleet_whole(
        self, processes: Processes, tmp_path: Path
    ) -> None:
        """R189: kill children 100×: the fleet is restored, and starts are spread by back-off."""
        running = fleet(processes, tmp_path, "polite", 20)
        for _ in range(5):
            for pid in running.wait_for(20, 60.0):
                running.kill(pid)
        running.wait_for(20, 60.0)
        assert len(running.said("here")) == 120
        waits = re.findall(r"worker 1 .* start in (\S+) s", running.output())
        assert float(waits[0]) < 1.1 < 20.0 < float(waits[4]), "and ever more slowly"

    def test_children_that_are_killed_again_and_again_come_back(
        self, processes: Processes, tmp_path: Path
    ) -> None:
        """R189: a smaller sample of the hundred kills."""
        running = fleet(processes, tmp_path, "polite", 4)
        for _ in range(2):
            for pid in running.wait_for(4):
                running.kill(pid)
        running.wait_for(4)
        assert len(running.said("here")) == 12


class TestStop:
    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    def test_all_children_are_told_once_and_a_clean_stop_is_exit_code_0(
        self, processes: Processes, tmp_path: Path, number: int
    ) -> None:
        """R184: whatever signal the supervisor got, each child gets one SIGTERM."""
        running = fleet(processes, tmp_path, "polite", 3)
        pids = running.wait_for(3)
        running.process.signal(number)
        assert running.process.wait(PATIENCE) == 0
        assert sorted(running.said("told")) == sorted(pids)
        assert not running.living()

    def test_the_deadline_is_shared_by_all_children(
        self, processes: Processes, tmp_path: Path
    ) -> None:
        """R183: N children that do not end take grace + 1 s together, not each."""
        running = fleet(processes, tmp_path, "stubborn", 5, grace=1.0)
        running.wait_for(5)
        asked_at = time.monotonic()
        running.process.terminate()
        assert running.process.wait(PATIENCE) == 1, "it was no clean stop"
        took = time.monotonic() - asked_at
        assert 1.9 <= took < 2.0 + SLACK
        assert not running.living()

    def test_a_second_signal_leaves_quickly(self, processes: Processes, tmp_path: Path) -> None:
        """R184: children get a second SIGTERM, and SIGKILL a second later."""
        running = fleet(processes, tmp_path, "stubborn", 3, grace=60.0)
        pids = running.wait_for(3)
        running.process.terminate()
        eventually(lambda: len(running.said("told")) == 3, message=running.output)
        asked_at = time.monotonic()
        running.process.terminate()
        assert running.process.wait(PATIENCE) == 1
        assert 0.9 <= time.monotonic() - asked_at < 1.0 + SLACK
        assert sorted(running.said("told")) == sorted([*pids, *pids])

    def test_nobody_else_is_signalled(self, processes: Processes, tmp_path: Path) -> None:
        """R184: neither a neighbour in the same process group nor a supervisor beside this one."""
        script = tmp_path / "child.py"
        script.write_text(CHILD)
        beside = f"""
        import subprocess, sys
        neighbour = subprocess.Popen([sys.executable, {str(script)!r}, "stubborn"])
        sys.argv = ["", '["{sys.executable}", "{script}", "stubborn"]', "2", "0.5"]
        {SUPERVISE.strip().replace(chr(10), chr(10) + " " * 8)}
        """
        running = fleet(processes, tmp_path, "polite", 1)
        pids = running.wait_for(1)
        process = processes.python(beside)
        here = re.compile(r"^here (\d+)", re.M)
        eventually(lambda: len(here.findall(process.output())) == 3, message=process.output)
        process.terminate()
        assert process.wait(PATIENCE) == 1
        told = set(re.findall(r"^told (\d+)", process.output(), re.M))
        [neighbour] = set(here.findall(process.output())) - told
        assert alive(int(neighbour))
        assert running.living() == pids
        assert not running.said("told")

    def test_a_stop_while_it_starts_leaves_no_child_behind(
        self, processes: Processes, tmp_path: Path
    ) -> None:
        """R184: at whatever moment the signal comes."""
        fleets = []
        for _ in range(5):
            fleets.append(fleet(processes, tmp_path, "polite", 3))
            time.sleep(0.07)  # so that the signal finds each at another point of its start
        for running in fleets:
            running.process.terminate()
        for running in fleets:
            assert running.process.wait(PATIENCE) in (0, -signal.SIGTERM)
            eventually(lambda running=running: not running.living(), 5.0)


class TestWorkers:
    """The real thing: worker processes as children."""

    @pytest.fixture
    def app(self, database: Database, tmp_path: Path) -> Iterator[App]:
        app = App.of(database, tmp_path)
        yield app
        app.close()

    def start(
        self, app: App, processes: Processes, count: int, grace: float, slack: float = 0.0
    ) -> Process:
        """With slack, workers begin to leave before they must: a loaded machine needs the time."""
        command = [sys.executable, "-m", "tests.support.app"]
        env = app.environment(grace=grace, concurrency=4)
        return Fleet(processes, command, count, grace + slack, **env).process

    def test_the_whole_fleet_leaves_together_with_every_job_given_back(
        self, app: App, processes: Processes
    ) -> None:
        """R182, R183: three busy workers, handlers that do not end."""
        jobs = app.ol.enqueue(*[app.nap.job(60.0), app.nap_in_thread.job(60.0)] * 6)
        supervisor = self.start(app, processes, 3, grace=1.0, slack=2 * SLACK)
        app.ledger.wait("start", count=12)
        asked_at = time.monotonic()
        supervisor.terminate()
        code = supervisor.wait(PATIENCE)
        assert time.monotonic() - asked_at < 2.0 + 2 * SLACK
        assert code == 0, supervisor.output()
        assert {app.ol.job(job.id).state for job in jobs} == {"ready"}
        assert {app.ol.job(job.id).attempt for job in jobs} == {0}

    @pytest.mark.kinds("sqlite")
    def test_a_signal_to_everyone_and_one_from_the_supervisor_are_one_stop(
        self, app: App, processes: Processes
    ) -> None:
        """R184: init systems signal each process of a service; workers drain all the same."""
        job = app.gated.enqueue("gate")
        supervisor = self.start(app, processes, 1, grace=30.0)
        [start] = app.ledger.wait("start")
        supervisor.terminate()
        os.kill(start.pid, signal.SIGTERM)
        eventually(lambda: [row.state for row in app.ol.workers()] == ["draining"], PATIENCE)
        (app.folder / "gate").touch()
        assert supervisor.wait(PATIENCE) == 0
        assert app.ol.job(job.id).state == "succeeded"

    @pytest.mark.kinds("postgres")
    def test_workers_do_not_outlive_a_killed_supervisor(
        self, app: App, processes: Processes
    ) -> None:
        """R189: they drain, give back what they hold, and leave."""
        jobs = app.ol.enqueue(*[app.nap.job(60.0)] * 4, *[app.nap_in_thread.job(60.0)] * 4)
        supervisor = self.start(app, processes, 2, grace=0.5)
        pids = {entry.pid for entry in app.ledger.wait("start", count=8)}
        assert len(pids) == 2
        supervisor.kill()
        eventually(lambda: not any(alive(pid) for pid in pids), 5.0 + SLACK)
        assert {app.ol.job(job.id).state for job in jobs} == {"ready"}

    @pytest.mark.campaign  # as the one above, but it takes the overtime
    @pytest.mark.kinds("sqlite")
    def test_a_worker_that_cannot_drain_does_not_outlive_a_killed_supervisor_either(
        self, app: App, processes: Processes
    ) -> None:
        """R189: nobody is left to kill it, so it ends itself."""
        app.block.enqueue(60.0)
        supervisor = self.start(app, processes, 1, grace=0.0)
        [start] = app.ledger.wait("start")
        supervisor.kill()
        eventually(lambda: not alive(start.pid), 5.0 + SLACK)
