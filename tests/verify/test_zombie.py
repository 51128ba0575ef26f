"""`outlast verify zombie`: a sample of every path of an owner, on both databases."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from outlast.verify.campaigns.campaign import CampaignOptions
from outlast.verify.campaigns.zombie import MAX_TRIES, Zombie, ZombieCampaign, walk
from outlast.verify.children import GAVE_UP_EXIT_CODE, ChildExit, Children
from outlast.verify.faults.points import FaultPoint
from outlast.verify.scenarios import SCENARIOS
from outlast.verify.workload import Workload
from outlast.verify.workspace import Workspace
from tests.support import Database, Processes
from tests.verify.running import run
from tests.verify.test_crash import left

OWNERS = {name for name, path in SCENARIOS.items() if path.owner}


@pytest.mark.slow_on("postgres")
def test_whoever_comes_back_too_late_changes_nothing(
    processes: Processes, database: Database
) -> None:
    """R030, R033, R210: frozen at a boundary until another owner has the job; then its finish (in
    all outcomes), release, renewal, events, steps, own writes and follow-up jobs are all refused,
    and it is told."""
    said = run(processes, "zombie", database, "--seed", 1, "--points", 3 * len(OWNERS) // 2)
    assert said["violations"] == 0, said["wrong"]
    assert set(said["paths"]) == OWNERS
    # An idle worker says more on a busy machine, when it was counted, than when its turn comes.
    assert {name for name, row in said["paths"].items() if not row.get("frozen")} <= {"worker-one"}
    assert said["taken"] >= len(OWNERS)
    assert said["refused"] > 3 * said["taken"]
    if not database.is_sqlite:
        assert said["held"] == 0  # a server ends a frozen session; a file's lock cannot be broken
    assert left(database) == []


def gave_up(campaign: ZombieCampaign, point: FaultPoint) -> None:
    campaign.running += 1
    campaign._stopped(
        Zombie("z1", point, campaign.workspaces.next()), ChildExit(1, code=GAVE_UP_EXIT_CODE)
    )


def test_who_could_not_reach_the_database_is_tried_again_and_not_for_ever(tmp_path: Path) -> None:
    """R210: on a busy machine a server may hang up on a session by its own timeout, which is no
    stale write; whoever never gets through is told of."""
    campaign = ZombieCampaign(CampaignOptions(seed=1))
    campaign._retry_points, campaign._tries = [], Counter()
    campaign.children = Children(tmp_path / "noise")
    point = FaultPoint("renew", 1, False)
    for tries in range(1, MAX_TRIES):
        gave_up(campaign, point)
        assert campaign._retry_points == [point] * tries
        assert campaign.results.violations == []
    gave_up(campaign, point)
    assert [wrong.path for wrong in campaign.results.violations] == ["renew"]
    campaign.clean_up()


def test_a_zombie_that_is_hung_up_on_says_so(tmp_path: Path) -> None:
    """R210: by its exit code, and not as one that failed."""
    place = Workspace("postgresql://nobody@127.0.0.1:1/nothing", "outlast", tmp_path)
    work, ends = Workload(place), list[ChildExit]()
    children = Children(tmp_path / "noise")
    children.start(partial(walk, work, "z1", FaultPoint("renew", 1, False), place), ends.append)
    children.wait()
    assert [end.code for end in ends] == [GAVE_UP_EXIT_CODE]
    assert "cannot be reached" in children.stderr_tail()
