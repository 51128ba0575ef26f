"""`outlast worker APP --until-idle`: its exit code says whether a job went dead."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Commands, Program

pytestmark = pytest.mark.kinds("sqlite")


def test_the_exit_code_says_whether_a_job_went_dead(run: Commands, program: Program) -> None:
    run("enqueue", "add", "--args", '{"a": 1}')
    good = program.worker("--until-idle")
    assert good.wait() == 0, good.output()
    assert "s: 1 succeeded, 0 dead" in good.output()
    run("enqueue", "give_up", "--args", '{"why": "no"}')
    bad = program.worker("--until-idle")
    assert bad.wait() == 1, bad.output()
    assert ": 0 succeeded, 1 dead" in bad.output()


def test_a_fleet_ends_when_all_its_processes_are_idle(run: Commands, program: Program) -> None:
    for _ in range(6):
        run("enqueue", "add", "--args", '{"a": 1}')
    run("enqueue", "give_up", "--args", '{"why": "no"}')
    fleet = program.worker("--until-idle", "--processes", "2")
    assert fleet.wait() == 1, fleet.output()
    assert run("jobs", "--state", "succeeded", "--json").json.__len__() == 6
    assert fleet.output().count(" stopped after ") == 2


def test_a_remote_worker_cannot_tell(run: Commands, program: Program) -> None:
    (program.folder / "token").write_text("ol_x")
    (program.folder / "token").chmod(0o600)
    worker = program.worker(
        "--until-idle", "--server", "http://127.0.0.1:9", "--token-file", "token"
    )
    assert worker.wait() != 0
    assert "cannot know that they are idle" in worker.output()
