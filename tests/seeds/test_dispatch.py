"""examples/seeds/dispatch.py: offers to agents over lines that drop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.seeds.playing import play
from tests.support import Database, Processes

ZEROS = ("attempts spent", "lost", "runs of a job that another agent had")
LEASE_S = 30  # a busy machine renews late, and the lease of a live agent must not end


def play_dispatch(
    processes: Processes, database: Database, kills: Sequence[str], *options: object
) -> dict[str, Any]:
    """The report, with what holds after any accident."""
    flags = [word for kill in kills for word in ("--kill", kill)]
    report = play(processes, "dispatch", database, "--lease", LEASE_S, *flags, *options)
    figures: dict[str, Any] = report["figures"]
    assert [figures[name] for name in ZEROS] == [0] * len(ZEROS)
    assert figures["running without a live owner"] == 0
    assert figures["runs"] == figures["jobs"] > 0
    return report


@pytest.mark.slow
@pytest.mark.kinds("sqlite")
def test_offers_that_are_lost_before_during_and_after_the_send_go_back_unspent(
    processes: Processes, database: Database
) -> None:
    """R039: five in a frame, three frames of each."""
    report = play_dispatch(processes, database, ("before-send", "during-send", "after-send"))
    assert report["kills"] == {"before-send": 3, "during-send": 3, "after-send": 3}
    assert report["figures"]["offers that met an accident"] > 9


@pytest.mark.slow
@pytest.mark.kinds("postgres")
def test_offers_on_a_half_open_line_and_of_a_killed_server_go_back_unspent(
    processes: Processes, database: Database
) -> None:
    """R039, R040: and what an agent runs when its server dies is reported to the next one."""
    kills = ("half-open", "server-offering", "server-running")
    report = play_dispatch(processes, database, kills)
    assert report["kills"] == dict.fromkeys(kills, 1)


@pytest.mark.campaign
@pytest.mark.parametrize("seed", range(1, 6))
def test_agents_survive_every_accident(processes: Processes, database: Database, seed: int) -> None:
    """R027, R039, R040: the server and an agent are killed, and lines are cut at random."""
    report = play_dispatch(processes, database, (), "--seed", seed)
    assert report["kills"]["random"] > 0 and report["kills"]["agent"] == 1
    assert report["figures"]["crashes charged by an agent's death"] > 0
