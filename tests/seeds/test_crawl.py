"""examples/seeds/crawl.py: pages and their entries in Redis, whichever process is killed."""

from __future__ import annotations

from typing import Any

import pytest

from tests.seeds.playing import play
from tests.support import Database, Processes
from tests.support.requirements import require_program

FETCHER = ("fetcher before its commit", "fetcher after its commit", "fetcher at random")
RELAY = ("relay before the send", "relay in the batch", "relay after the send")
IMPORTER = ("importer before its commit", "importer after its commit")
CANCELLER = ("canceller before its commit", "canceller after its commit")


@pytest.fixture(autouse=True)
def servers(database: Database) -> None:
    require_program("redis-server")
    if database.url.startswith("postgresql"):
        require_program("pgbouncer")


def assert_all_held(figures: dict[str, Any], pages: int) -> None:
    wanted = {
        "pages crawled": pages,
        "pages that the summary counts": pages,
        "pages without an entry": 0,
        "entries without a page": 0,
        "messages in the largest batch": pages,
        "sent, with one entry of the wrong type": pages - 1,
        "members of one entry too many": 0,
        "sent without a page": 0,
        "dead": 1,
        "error of the dead entry": "WRONGTYPE",
        "sent, after the redrive": pages,
        "imported after the commit": pages,
        "cancelled after the commit": pages // 2,
        "crawl after the commit": "cancelled",
        "Redis away: entries that wait": pages,
        "Redis away: dead": 0,
        "Redis back: sent": pages,
        "Redis back: attempts spent": 0,
        "cancelled entries sent": 0,
    }
    assert wanted.items() <= figures.items()
    assert figures["Redis away: seconds"] >= 5.0  # ten times the budget


@pytest.mark.slow
@pytest.mark.kinds("sqlite")
def test_a_relay_and_a_canceller_that_are_killed_lose_and_send_nothing_wrong(
    processes: Processes, database: Database
) -> None:
    """R055, R123, R124, R212, R223: a batch with one poison, an outage, and a cancel in it."""
    options = ("--pages", 60, "--kill", "relay", "--kill", "canceller")
    report = play(processes, "crawl", database, *options)
    assert report["kills"] == dict.fromkeys((*RELAY, "redis", *CANCELLER), 1)
    assert_all_held(report["figures"], 60)
    # Killed after half of the batch, and after all of it: sent again, under the same ids.
    assert report["figures"]["commands that Redis has seen"] == 60 // 2 + 60 + 60
    assert report["figures"]["cancelled before the commit"] == 0


@pytest.mark.slow
@pytest.mark.kinds("postgres")
def test_fetchers_and_an_importer_behind_a_pooler_that_are_killed_tear_no_page_from_its_entry(
    processes: Processes, database: Database
) -> None:
    """R002, R094, R107, R123, R212: all processes go through PgBouncer in transaction mode."""
    options = ("--pages", 60, "--kill", "fetcher", "--kill", "importer")
    report = play(processes, "crawl", database, *options)
    assert report["kills"] == {
        **dict.fromkeys((*FETCHER, "redis", *IMPORTER), 1), "fetcher at random": 3
    }  # fmt: skip
    assert_all_held(report["figures"], 60)
    assert report["figures"]["imported before the commit"] == 0


@pytest.mark.campaign
@pytest.mark.parametrize("seed", range(1, 6))
def test_a_crawl_of_500_pages_survives_every_kill(
    processes: Processes, database: Database, seed: int
) -> None:
    """R123, R124, R212, R223: 499 and one dead; all named points and random ones."""
    report = play(processes, "crawl", database, "--seed", seed)
    assert {*FETCHER, *RELAY, *IMPORTER, *CANCELLER, "redis"} == set(report["kills"])
    assert_all_held(report["figures"], 500)
