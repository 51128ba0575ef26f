"""examples/seeds/inbox.py: mails are stored, approved and exported once, whatever is killed."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import pytest

from tests.seeds.playing import play
from tests.support import Database, Processes
from tests.support.requirements import require_program, skip_or_fail

POINTS = ("before-acknowledge", "after-acknowledge", "before-commit", "after-commit")
ZEROS = (
    "lost",
    "twice",
    "approvals without an export",
    "events that the browser got twice",
    "dead jobs",
    "subscribers left",
)


def play_inbox(
    processes: Processes, database: Database, kills: Sequence[str], *options: object
) -> dict[str, Any]:
    """The report, with what holds after any accident."""
    flags = [word for kill in kills for word in ("--kill", kill)]
    report = play(processes, "inbox", database, *flags, *options)
    figures: dict[str, Any] = report["figures"]
    mails = figures["mails"]
    assert mails >= 2 * 40
    assert [figures[name] for name in ZEROS] == [0] * len(ZEROS)
    assert figures["approvals"] == figures["exports"] == figures["pushes that became jobs"] == mails
    assert figures["jobs"] == 2 * mails + figures["syncs"] and figures["runs"] >= figures["jobs"]
    return report


@pytest.mark.slow
@pytest.mark.kinds("sqlite")
def test_mails_pushed_by_redis_survive_the_source_the_broker_and_two_hundred_watchers(
    processes: Processes, database: Database
) -> None:
    """R014, R022, R026, R133: killed around the acknowledgement; ten seconds without a broker."""
    require_program("redis-server")
    report = play_inbox(processes, database, (*POINTS[:2], "watchers", "broker"))
    assert report["kills"] == {"before-acknowledge": 1, "after-acknowledge": 1, "broker": 1}
    figures = report["figures"]
    assert figures["watchers reset before the first frame"] == 200
    assert 1 <= figures["polls while the broker is away"] <= 12
    assert figures["pushes received again"] > 0, "the messages of the source that was killed"
    assert figures["syncs"] < figures["mails"], "one that waits is enough"


@pytest.mark.slow
@pytest.mark.kinds("postgres")
def test_mails_pushed_by_sqs_are_exported_if_and_only_if_they_are_approved(
    processes: Processes, database: Database
) -> None:
    """R001, R002: the approver dies before its COMMIT, and after it."""
    require_moto()
    report = play_inbox(processes, database, ("before-commit", "after-commit"), "--broker", "sqs")
    assert report["kills"] == {"before-commit": 1, "after-commit": 1}


def require_moto() -> None:
    if find_spec("moto") is None:
        skip_or_fail("moto is not installed")


@pytest.mark.campaign
@pytest.mark.parametrize("broker", ["redis", "sqs"])
@pytest.mark.parametrize("seed", range(1, 6))
def test_mails_survive_every_accident(
    processes: Processes, database: Database, broker: str, seed: int
) -> None:
    """R001, R002, R014, R022, R026, R133: and every process is killed at random times."""
    report = play_inbox(processes, database, (), "--broker", broker, "--seed", seed)
    assert dict.fromkeys(POINTS, 1).items() <= report["kills"].items()
    assert report["kills"]["random"] > 0
