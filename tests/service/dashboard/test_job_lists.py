"""The list of jobs: its order, arguments, jobs that are selected from it, and how it goes on."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from outlast.service.dashboard.cards import as_cards
from outlast.service.dashboard.live_lists import REFRESH_INTERVAL_S, JobList, LiveLists
from tests.service.dashboard.looking import Browser
from tests.service.dashboard.test_actions import recorded
from tests.service.dashboard.test_job_pages import dead
from tests.service.dashboard.test_live import counted, questions
from tests.service.serving import Served, bearer
from tests.store.jobs import end, put, put_and_take, take
from tests.support import Database, eventually

pytestmark = pytest.mark.kinds("sqlite")


def ids(text: str) -> list[str]:
    return re.findall(r'<tr data-id="([0-9a-f-]{36})"', text)


def next_page(text: str) -> str | None:
    found = re.search(r'href="([^"]*)" rel="next"', text)
    return found and found[1].replace("&amp;", "&")


def test_a_list_is_sorted_by_its_heading(served: Served) -> None:
    """R166: dead jobs by their end, both ways, page by page; the address keeps order and filter."""
    claims = [put_and_take(served.ol.store.run, queue="mail") for _ in range(60)]
    for claim in reversed(claims):
        end(served.ol.store.run, claim, "permanent")
    put_and_take(served.ol.store.run)
    # Two may end within one tick of SQLite's clock: then the older one is first.
    jobs = served.ol.jobs(state="dead", queue="mail", limit=100)
    ended = [job.id for job in sorted(jobs, key=lambda job: (job.finished_at, job.id))]
    assert len(ended) == 60 and ended[0] > ended[-1], "the last one ended first"
    path: str | None = "/jobs?state=dead&queue=mail"
    newest = served.get(path or "").text
    assert 'aria-sort="descending"' in newest and "sort=-ended" in newest
    seen: list[str] = []
    path = "/jobs?state=dead&queue=mail&sort=ended"
    while path is not None:
        text = served.get(path).text
        assert 'aria-sort="ascending"' in text
        assert 'name="sort" value="ended"' in text, "the form of the filter keeps it"
        seen += ids(text)
        path = next_page(text)
    assert seen == ended
    text = served.get("/jobs?state=dead&queue=mail&sort=-ended").text
    assert ids(text) == ended[:9:-1]
    assert ids(served.get("/jobs?queue=mail&sort=enqueued").text)[0] == claims[0].id


def test_an_order_that_a_state_does_not_have_is_the_usual_one(served: Served) -> None:
    """R166: nothing is sorted that no index has."""
    put(served.ol.store.run, 3)
    text = served.get("/jobs?state=ready&sort=ended").text
    assert ids(text) == sorted(ids(text), reverse=True) and "sort=-ended" not in text
    assert served.get("/jobs?sort=error").status_code == 422
    assert served.get("/jobs?cursor=nonsense").status_code == 422
    late = "/jobs?cursor=999999999999.0_00000000-0000-0000-0000-000000000000"
    assert len(ids(served.get(late).text)) == 3, "no such position: the beginning"


def test_arguments_are_previewed_without_secrets(served: Served) -> None:
    """R166, R200"""
    put(served.ol.store.run, args='{"user": 7, "secret:card": "4111"}')
    put(served.ol.store.run, args='{"text": "' + "x" * 20_000 + '"}')
    text = served.get("/jobs").text
    assert "user=7, card=&#34;***&#34;" in text and "4111" not in text
    assert "20,012 characters" in text and "xxxx" not in text


def selected(*jobs: str, **more: str) -> str:
    query = httpx.QueryParams([*(("ids", id) for id in jobs), ("chosen", "true"), *more.items()])
    return str(query)


def test_selected_jobs_are_counted_asked_about_and_changed(
    served: Served, browser: Browser, database: Database
) -> None:
    """R166, R200: those and no others; who did it is on record; what could not be is told."""
    dead_ones = [dead(served, "Boom") for _ in range(3)]
    (ready,) = put(served.ol.store.run)
    browser.log_in(served.token("admin", name="ada"))
    question = browser.go(f"/jobs/redrive?{selected(*dead_ones[:2], ready.id, state='dead')}")
    assert "Redrive 2 jobs?" in question.text
    assert "1 selected job is left alone:" in question.text
    assert served.ol.counts()["dead"] == 3, "asking does nothing"
    told = browser.send(question.form_to("/jobs/redrive"))
    assert "Redrove 2 jobs." in told.text and "Left alone: 1 ready" in told.text
    assert served.ol.job(dead_ones[2]).state == "dead"
    assert {served.ol.job(id).state for id in dead_ones[:2]} == {"ready"}
    records = recorded(database, "redrive")
    assert len(records) == 2 and all("token ada" in record for record in records)
    question = browser.go(f"/jobs/cancel?{selected(dead_ones[0], ready.id)}")
    told = browser.send(question.form_to("/jobs/cancel"), reason="not now")
    assert "Cancelled 2 jobs." in told.text
    assert all("not now" in record for record in recorded(database, "cancel"))
    assert served.ol.job(dead_ones[1]).state == "ready"


def test_an_empty_selection_is_no_job_and_not_all_jobs(served: Served, browser: Browser) -> None:
    """R166: the list's form was sent without a box that is checked."""
    put(served.ol.store.run, 3)
    browser.log_in(served.token("admin"))
    question = browser.go(f"/jobs/cancel?{selected()}")
    assert "No jobs to cancel" in question.text and "No job is selected." in question.text
    told = browser.send(question.form_to("/jobs/cancel"))
    assert "Cancelled 0 jobs." in told.text
    assert served.ol.counts()["ready"] == 3


def test_a_selection_reaches_no_further_than_its_user(served: Served, browser: Browser) -> None:
    """R145"""
    mine, other = (put(served.ol.store.run, tenant=tenant)[0].id for tenant in ("a", "b"))
    browser.log_in(served.token("admin", tenant="a"))
    question = browser.go(f"/jobs/cancel?{selected(mine, other)}")
    assert "Cancel 1 job?" in question.text and other[-8:] not in question.text
    told = browser.send(question.form_to("/jobs/cancel"))
    assert "Cancelled 1 job." in told.text and "1 removed" in told.text
    assert served.ol.job(other).state == "ready"


def test_a_selection_is_bounded_and_read_only_users_have_none(served: Served) -> None:
    """R200"""
    put(served.ol.store.run, 3)
    many = selected(*["0198c1f2-7d1e-7c3a-9f65-2b1f0c3d4e5f"] * 101)
    assert served.get(f"/jobs/cancel?{many}").status_code == 422
    assert served.get("/jobs/cancel?ids=x&chosen=true").status_code == 422
    assert served.get("/jobs?state=dead&state=ready").status_code == 422, "other names once"
    text = served.get("/jobs", served.token("read")).text
    assert len(ids(text)) == 3 and "checkbox" not in text and 'id="selection"' not in text


async def follow(
    url: str, paths: list[str], token: str, until: Any, parts: Counter[str]
) -> dict[str, str]:
    """The last version of each list, when `until` says so of all of them."""
    last: dict[str, str] = {}

    async def one(http: httpx.AsyncClient, name: str, path: str) -> None:
        async with http.stream("GET", path, headers=bearer(token)) as answer:
            assert answer.status_code == 200
            html = ""
            async for line in answer.aiter_lines():
                if line.startswith("data: "):
                    html += line.removeprefix("data: ")
                elif not line and html:
                    parts[name] += 1
                    last[name], html = html, ""
                    if until(last[name]):
                        return

    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=url, timeout=60, limits=limits, trust_env=False) as http:
        named = [(f"{number} {path}", path) for number, path in enumerate(paths)]
        await asyncio.wait_for(asyncio.gather(*(one(http, *named_one) for named_one in named)), 60)
    return last


def test_a_list_is_sent_again_when_a_row_changes(served: Served) -> None:
    """R166: state and new rows, without a reload; afterwards nobody holds it."""
    (job,) = put(served.ol.store.run, queue="live")
    lists, parts = served.app.service.live_lists, Counter[str]()
    with ThreadPoolExecutor(1) as beside:
        shown = beside.submit(
            asyncio.run,
            follow(served.url, ["/live/jobs?queue=live"], served.token("read"),
                   lambda html: "state-cancelled" in html and len(ids(html)) == 2, parts),
        )  # fmt: skip
        eventually(lambda: parts.total() == 1, timeout=20)
        served.ol.cancel(job.id)
        put(served.ol.store.run, queue="live")
        put(served.ol.store.run, queue="other")
        shown.result()
    assert parts.total() <= 3, "a version for each change, none without one"
    eventually(lambda: len(lists) == 0, timeout=5)
    assert served.app.service.viewers.taken == 0


async def test_a_list_that_did_not_change_is_not_sent_again(served: Served) -> None:
    """R166: however often it is read; only a sign of life is."""
    (job,) = put(served.ol.store.run)
    reads = 0

    async def read() -> JobList:
        nonlocal reads
        reads += 1
        return JobList(served.ol.jobs(), None)

    changes = LiveLists().changes("all", read, keep_alive_s=0.0)
    first = await anext(changes)
    assert first is not None and [one.id for one in first.jobs] == [job.id]
    while reads < 3:
        assert await anext(changes) is None
    served.ol.cancel(job.id)
    while (last := await anext(changes)) is None:
        assert reads < 6
    assert str(last.jobs[0].state) == "cancelled"
    await changes.aclose()


def test_viewers_of_a_list_share_what_is_read(served: Served) -> None:
    """R166: what is asked does not grow with those who look, nor with the jobs that change."""
    token, parts = served.token("read"), Counter[str]()
    put(served.ol.store.run, 40, queue="live")
    lists = served.app.service.live_lists
    viewers = ["/live/jobs?queue=live"] * 20 + ["/live/jobs?queue=live&state=ready"] * 20
    with ThreadPoolExecutor(1) as beside:
        shown = beside.submit(
            asyncio.run,
            follow(served.url, viewers, token, lambda html: "No matching jobs" in html, parts),
        )
        eventually(lambda: len(parts) == 40, timeout=30)
        assert len(lists) == 2
        began = time.monotonic()
        with counted(served) as said:
            for claim in take(served.ol.store.run, 40, queue="live"):
                end(served.ol.store.run, claim)
            time.sleep(3 * REFRESH_INTERVAL_S)  # what is measured is a rate
        took = time.monotonic() - began
        served.ol.purge(state="succeeded", queue="live")
        shown.result()
    asked = Counter(text for text in questions(said) if "ol.line" in text or "j.waits_for" in text)
    assert 0 < sum(asked.values()) <= 2 * (took / REFRESH_INTERVAL_S + 2), asked


def test_cells_carry_their_headings(served: Served) -> None:
    """R167: so that a phone can show a row as a card; text in a cell is no tag."""
    put(served.ol.store.run, task="<td><tr>", queue="mail")
    text = served.get("/jobs").text
    assert 'role="rowheader" data-label="Task">&lt;td&gt;&lt;tr&gt;</th>' in text
    assert 'data-label="Queue">mail</td>' in text
    rows = re.findall(r"<tr[^>]*>(.*?)</tr>", text, re.DOTALL)
    heads = len(re.findall(r"<th ", rows[0]))
    assert heads == len(re.findall(r"<t[dh] ", rows[1])) == len(re.findall("data-label", rows[1]))


def test_cards_of_a_table() -> None:
    from markupsafe import Markup

    made = as_cards(
        Markup('<thead><tr><th scope="col"><a href="/">A &amp; B</a></th></tr></thead>'
               '<tbody><tr><th scope="row">x</th><td class="amount">1</td></tr></tbody>')
    )  # fmt: skip
    assert made == (
        '<thead role="rowgroup"><tr role="row"><th scope="col" role="columnheader">'
        '<a href="/">A &amp; B</a></th></tr></thead><tbody role="rowgroup"><tr role="row">'
        '<th scope="row" role="rowheader" data-label="A &amp; B">x</th>'
        '<td class="amount" role="cell" data-label="">1</td></tr></tbody>'
    )
