"""Limits and lanes from the command line."""

from __future__ import annotations

from outlast import Outlast
from outlast.ops.claim import ClaimRequest, claim
from outlast.ops.lanes import LaneTurn
from tests.cli.conftest import Commands
from tests.cli.test_job_actions import made


def test_limits_are_changed_and_shown(run: Commands, ol: Outlast) -> None:
    """R238: `limit`, `queues` and `lanes`."""
    ol.limit("default", lane_running=2)
    for _ in range(3):
        made(run)
    assert run("limit", "default", "--running", "5", "--lane-rate", "60/m").out == (
        "default allows: 5 running, 2 of a lane, 1/s of a lane.\n"
    )
    assert "Limits of default: 0 of 5 running, 2 of a lane" in run("queues").out
    (queue,) = run("queues", "--json").json
    assert queue["limits"] == {"running": 5, "lane_running": 2, "lane_rate": 1.0}
    (lane,) = run("lanes", "default", "--json").json
    assert (lane["lane"], lane["ready"], lane["running"], lane["limit"]) == ("default", 3, 0, 2)
    assert run("limit", "default", "--running", "none", "--json").json["limits"] == {
        "lane_running": 2,
        "lane_rate": 1.0,
    }
    assert run("limit", "default", "--reset").out == "default allows: no limits.\n"
    for wrong in ([], ["--running", "x"], ["--rate", "5/fortnight"], ["--burst", "3"]):
        answer = run("limit", "other", *wrong)
        assert answer.code == 2, answer.err


def test_a_quota_is_set_and_refuses_on_the_command_line(run: Commands, ol: Outlast) -> None:
    """R149: whatever the process that enqueues declares."""
    made(run)
    assert run("limit", "default", "--quota", "1/d", "--lane-quota", "5/15m").out == (
        "default allows: 1/d admitted, 5/15m admitted of a lane.\n"
    )
    made(run)
    refused = run("enqueue", "work")
    assert refused.code == 1 and "1 of 1 jobs are used. There is room again at" in refused.err
    assert run("limit", "default", "--quota", "none", "--lane-quota", "none").code == 0
    made(run)
    wrong = run("limit", "default", "--quota", "5/s")
    assert wrong.code == 2 and "use a rate for less" in wrong.err


def test_a_job_says_which_jobs_have_the_slots_of_its_lane(run: Commands, ol: Outlast) -> None:
    """R120: the reason, and who has the slots."""
    ol.limit("default", lane_running=1)
    first, second = made(run), made(run)
    (task,) = {ol.job(first).task}
    _register(ol, task)
    ol.store.run(claim, ClaimRequest("w1", "default", 1, 60.0, turn=LaneTurn()))
    assert f"1 of 1 slot of lane default is taken by {first}." in run("job", second).out
    ol.limit("default", lane_running=None, running=1)
    assert "1 of 1 slot of its queue is taken." in run("job", second).out
    ol.limit("default", running=10)
    assert (
        run("pause", "default", "--lane", "default").out == "Lane default of default is paused.\n"
    )
    shown = run("job", second).out
    assert "Lane default is paused: `outlast resume default --lane default` lets it run." in shown
    assert "\nlane        default\n" in shown
    assert run("resume", "default", "--lane", "default").code == 0
    assert "Lane default" not in run("job", second).out
    assert run("pause", "--tenant", "acme").out == "Tenant acme is paused.\n"
    refused = run("pause", "mail", "--lane", "acme")
    assert refused.code == 2 and "mail has no lanes" in refused.err
    assert run("pause").code == run("pause", "--lane", "x").code == 2


def _register(ol: Outlast, task: str) -> None:
    from json import dumps

    from outlast.ops import workers as worker_ops

    row = ol.worker().registration_row()
    ol.store.run(worker_ops.register, row | {"id": "w1", "tasks": dumps([task])})
