"""Whatever is stored, nothing of it runs in a browser."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.browser.conftest import visiting
from tests.browser.pages import ELSEWHERE, PAGES, page_routes, paths
from tests.browser.payloads import PAYLOADS
from tests.browser.seeding import malice
from tests.browser.visiting import Visitor
from tests.support import eventually
from tests.support.databases import sqlite_database

BY_ADDRESS = [
    "/jobs?text=EVIL&queue=EVIL&task=EVIL&error=EVIL",
    "/jobs?state=EVIL",
    "/jobs?sort=EVIL&cursor=EVIL",
    "/jobs/cancel?ids=EVIL&chosen=EVIL",
    "/jobs/redrive?task=EVIL",
    "/jobs/purge?state=dead&error=EVIL",
    "/jobs/move?queue=EVIL",
    "/schedules?text=EVIL&cursor=EVIL",
    "/queues/pause?queue=EVIL",
    "/queues/keep?queue=EVIL",
    "/queues?text=EVIL",
    "/?range=EVIL",
    "/workers/drain?worker=EVIL",
    "/jobs/EVIL",
    "/flows/EVIL",
    "/EVIL",
]
AT_ONCE = 20  # payloads in one value, so that few visits show all of them


def test_every_page_is_visited() -> None:
    """A page that nobody thought of is found here."""
    assert len(set(PAYLOADS)) >= 200
    assert {route.name for route in page_routes()} - set(PAGES) - ELSEWHERE == set()


@pytest.fixture(scope="module", params=[AT_ONCE, pytest.param(1, marks=pytest.mark.campaign)])
def victim(
    browser: Any, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Visitor]:
    database = sqlite_database(Path(tmp_path_factory.mktemp("malice")))
    with visiting(browser, database, malice(database, request.param)) as made:
        yield made


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_nothing_that_is_stored_is_executed(victim: Visitor) -> None:
    """More than 200 payloads in every stored field, on every page, in a real browser: no
    dialog, no global set, no error, no request elsewhere, no report of the policy."""
    open_paths, visited = all_paths(victim), 0
    for path in open_paths:  # grows during the loop
        page = victim.visit(path)
        page.mouse.move(300, 300)
        page.keyboard.press("Tab")
        assert victim.executed() == [], path
        assert victim.troubles == [], path
        open_paths += [link.get_attribute("href") for link in page.locator("a[rel=next]").all()]
        visited += 1
    print(f"{visited} pages with {len(PAYLOADS)} payloads")
    victim.visit("/jobs")
    titles = victim.page.locator("tbody th").all_text_contents()
    assert any("<script>" in title for title in titles), "the payloads did not get as far"


def test_what_comes_live_is_not_executed_either(victim: Visitor) -> None:
    """Events that a script puts on an open page, whatever their kind and their fields say."""
    job = victim.stage.jobs["running 0"]
    page = victim.visit(f"/jobs/{job}")
    page.wait_for_selector("[data-job-live]:not([hidden])")
    before = page.locator("#events li").count()
    with victim.database.connect() as connection:
        for kind, payload in zip(["log", "progress", "<b>"] * 100, PAYLOADS, strict=False):
            data = json.dumps({"message": payload, "note": payload, payload: payload, "done": 1})
            connection.execute(
                "INSERT INTO outlast_event (job, attempt, kind, data, at) VALUES (?, 1, ?, ?, 0)",
                (job, kind, data),
            )
    eventually(lambda: page.locator("#events li").count() - before == len(PAYLOADS), timeout=15)
    assert victim.executed() == [] and victim.troubles == []


def all_paths(victim: Visitor) -> list[str]:
    """Every page with its first subject, and the pages of single things with all of them."""
    jobs, flows = victim.stage.jobs, victim.stage.flows
    token = victim.database.rows("SELECT id FROM outlast_token ORDER BY id")[0][0]
    found = paths(running=jobs["running 0"], dead=jobs["dead 0"], flow=flows[0], token=token)
    found += [f"/jobs/{id}" for name, id in jobs.items() if not name.startswith("waiting")]
    return found + [f"/flows/{id}" for id in flows]


def test_what_comes_by_an_address_is_not_executed_either(victim: Visitor) -> None:
    """Filters and names that a link brings: into fields, headings and errors."""
    for number in range(0, len(PAYLOADS), 90):
        evil = quote(" ".join(PAYLOADS[number : number + 3])[:190], safe="")
        for path in BY_ADDRESS:
            victim.page.goto(f"{victim.page.base}{path.replace('EVIL', evil)}")
            assert victim.executed() == [] and victim.troubles == [], path


def test_the_watch_notices_what_runs(victim: Visitor) -> None:
    """A test that cannot fail shows nothing: a page that lets one through is noticed."""
    page = victim.open()
    page.route("**/hole", lambda route: answer(route, "<img src=x onerror=window.pwned=1>"))
    page.goto(f"{page.base}/hole")
    page.wait_for_function("window.pwned")
    assert victim.executed(page) == ["1"]
    strict = {"content-security-policy": "default-src 'none'"}
    page.route("**/closed", lambda route: answer(route, "<script>1</script>", strict))
    page.goto(f"{page.base}/closed")
    page.wait_for_function("window.violations.length")
    assert victim.executed(page) != [] and victim.troubles != []
    victim.troubles.clear()


def answer(route: Any, body: str, headers: dict[str, str] | None = None) -> None:
    route.fulfill(status=200, content_type="text/html", body=body, headers=headers)
