"""Pages that go on by themselves, and actions that ask once and say what they did."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.browser.visiting import Visitor
from tests.store.jobs import put, put_and_take
from tests.support import Proxy, eventually


def say(visitor: Visitor, job: str, note: str, number: int) -> None:
    """As a handler would, in a transaction of its own."""
    visitor.database.rows(
        "INSERT INTO outlast_event (job, attempt, fence, n, kind, data, at)"
        " VALUES (?, 1, 1, ?, 'progress', ?, unixepoch())",
        (job, number, f'{{"done": {number}, "total": 9, "note": "{note}"}}'),
    )


@pytest.mark.slow
def test_events_come_by_themselves_and_after_a_lost_connection(visitor: Visitor) -> None:
    """R135: each once and in order, with the connection cut between them; the browser comes
    back without help."""
    job = put_and_take(visitor.served.ol.store.run, queue="live").id
    host, port = visitor.served.url.removeprefix("http://").split(":")
    with Proxy((host, int(port))) as proxy:
        page = visitor.open(base=f"http://{proxy.host}:{proxy.port}")
        visitor.visit(f"/jobs/{job}", page)
        page.wait_for_selector("[data-job-live]:not([hidden])")
        for number in range(1, 4):
            say(visitor, job, f"part {number}", number)
            page.wait_for_selector(f"text=part {number}")
            proxy.cut()
        said = page.locator("#events .said").all_text_contents()
        assert said == [f"{number} of 9 – part {number}" for number in range(1, 4)]
    assert visitor.executed(page) == []


@pytest.mark.slow
def test_a_page_says_when_its_job_has_ended(visitor: Visitor) -> None:
    """The state, the words and the result change without a reload, and the stream is over."""
    (job,) = put(visitor.served.ol.store.run, queue="live")
    page = visitor.visit(f"/jobs/{job.id}")
    page.wait_for_selector("[data-job-live]:not([hidden])")
    visitor.served.ol.cancel(job.id)
    page.wait_for_selector("#standing .state-cancelled")
    page.wait_for_selector("#events .kind:text('cancel')")


@pytest.mark.slow
def test_without_a_script_all_of_it_is_there(visitor: Visitor) -> None:
    """R167: the same page, its events as a list, its question as a page of its own."""
    page = visitor.open(java_script_enabled=False)
    visitor.visit(f"/jobs/{visitor.stage.jobs['running']}", page)
    assert page.locator("#events li").count() == 7
    assert "***" in page.inner_text("main") and "4111" not in page.content()
    assert page.locator("[data-copy]").is_hidden(), "it would do nothing"
    page.click("text=Cancel…")
    page.fill("#reason", "no longer needed")
    page.click("text=Cancel it")
    assert "asked to stop" in page.inner_text(".flash-done")
    assert "no longer needed" in page.inner_text("#events")


@pytest.mark.slow
def test_an_id_is_copied_by_a_press(visitor: Visitor) -> None:
    page = visitor.open(permissions=["clipboard-read", "clipboard-write"])
    job = visitor.stage.jobs["dead"]
    visitor.visit(f"/jobs/{job}", page)
    page.click("[data-copy]")
    page.wait_for_selector("text=Copied")
    assert page.evaluate("navigator.clipboard.readText()") == job


@pytest.mark.slow
def test_a_chart_says_what_was_where_the_pointer_is(visitor: Visitor) -> None:
    """R167: as near as its line is drawn; and what is, when the pointer has gone."""
    page = visitor.visit("/?range=day")
    chart = page.locator("#chart-throughput")

    def said() -> Any:
        """As often as it takes: the chart may be drawn anew between any two of these."""
        if (box := chart.locator(".plot svg").bounding_box()) is None:
            return None
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 40)
        return re.search(r"11 h 50 min ago[^$]*succeeded ([\d.]+)", chart.inner_text())

    rate = eventually(said)[1]
    assert 0.1 < float(rate) < 0.5, "the night is quiet"
    page.mouse.move(5, 5)
    assert " ago" not in chart.inner_text()
    assert visitor.executed(page) == []


@pytest.mark.slow
def test_all_that_fit_are_counted_asked_about_and_done_with(visitor: Visitor) -> None:
    """R166: an action on a filter, from its address to what it says afterwards."""
    put(visitor.served.ol.store.run, 230, queue="crowd")
    eventually(lambda: counted(visitor) == 230, timeout=20)
    page = visitor.visit("/jobs?queue=crowd")
    page.click("text=Cancel all matching…")
    page.wait_for_selector("dialog[open]")
    assert "Cancel 230 jobs?" in page.inner_text("dialog h1")
    page.fill("dialog #reason", "all of it")
    page.click("dialog button.danger")
    page.wait_for_selector(".flash-done", timeout=60_000)
    assert "Cancelled 230 jobs." in page.inner_text(".flash-done")
    assert {job.state for job in visitor.served.ol.jobs(queue="crowd", limit=300)} == {"cancelled"}


def counted(visitor: Visitor, queue: str = "crowd") -> int:
    answer = visitor.served.get(f"/api/v1/counts?queue={queue}&state=ready", visitor.secret)
    return int(answer.json()["total"])


@pytest.mark.slow
def test_matching_jobs_are_changed_in_a_dialog(visitor: Visitor) -> None:
    """R166, R200: another priority, lane and time, in both themes; what cannot be is said."""
    ol = visitor.served.ol
    ol.limit("changes", lane_running=1)
    put(ol.store.run, 120, queue="changes")
    eventually(lambda: counted(visitor, "changes") == 120, timeout=20)
    for theme in ("light", "dark"):
        page = visitor.open(color_scheme=theme)
        told = change(visitor, page, "Prioritize", priority="soon")
        assert "No change." in told and "must be a whole number" in told
        assert "Prioritized 120 jobs." in change(visitor, page, "Prioritize", priority="7")
        assert {job.priority for job in ol.jobs(queue="changes", limit=200)} == {7}
        assert "Moved 120 jobs." in change(visitor, page, "Move", lane=theme)
        assert {job.lane for job in ol.jobs(queue="changes", limit=200)} == {theme}
    assert "Rescheduled 120 jobs." in change(visitor, page, "Reschedule", when="2h")
    assert {job.state for job in ol.jobs(queue="changes", limit=200)} == {"scheduled"}
    assert visitor.executed(page) == []


def change(visitor: Visitor, page: Any, verb: str, **fields: str) -> str:
    visitor.visit("/jobs?queue=changes&state=ready", page)
    page.click(f"text={verb} all matching…")
    page.wait_for_selector("dialog[open]")
    assert f"{verb} 120 jobs?" in page.inner_text("dialog h1")
    for name, value in fields.items():
        page.fill(f"dialog #{name}", value)
    page.click("dialog button.primary")
    page.wait_for_selector(".flash", timeout=60_000)
    return str(page.inner_text(".flash"))


@pytest.mark.slow
def test_the_dead_are_redriven_by_what_they_died_of(visitor: Visitor) -> None:
    """A group as one, and no job of another group."""
    before = dead(visitor)
    page = visitor.visit("/dead")
    row = page.locator("tr", has_text="CardDeclined")
    number = int(row.locator("td.amount").inner_text())
    row.locator("a[data-ask]", has_text="Redrive").click()
    page.wait_for_selector("dialog[open]")
    assert re.search(rf"Redrive {number} jobs\?", page.inner_text("dialog h1"))
    page.click("dialog button.primary")
    page.wait_for_selector(".flash-done")
    assert f"Redrove {number} jobs." in page.inner_text(".flash-done")
    assert dead(visitor) == before - number


@pytest.mark.slow
def test_what_operators_do_is_asked_in_a_dialog_and_told(visitor: Visitor) -> None:
    """R167, R200: in a browser as without a script."""
    page = visitor.visit(f"/jobs/{visitor.stage.jobs['running']}")
    assert "was reclaimed from worker-1" in told(page, "Reclaim…")
    visitor.visit(f"/jobs/{visitor.stage.jobs['cancelled']}")
    assert "is erased" in told(page, "Forget…")
    visitor.visit("/workers")
    assert "worker-1 is draining" in told(page, "Drain…")
    assert "worker-1 claims again" in told(page, "Undrain…")
    visitor.visit("/queues")
    assert "for 2 h at most" in told(page, "Keep…", keep="2h")
    before = dead(visitor)
    visitor.visit("/dead")
    (number,) = re.findall(r"Removed (\d+) jobs?\.", told(page, "Purge…"))
    assert dead(visitor) == before - int(number)


def told(page: Any, label: str, **blanks: str) -> str:
    """What is said after an action was asked for and agreed to."""
    page.locator("a[data-ask]", has_text=label).first.click()
    page.wait_for_selector("dialog[open]")
    for name, value in blanks.items():
        page.fill(f"dialog #{name}", value)
    with page.expect_navigation():
        page.click("dialog button.primary, dialog button.danger")
    return str(page.inner_text(".flash-done"))


def dead(visitor: Visitor) -> int:
    return int(visitor.served.ol.counts()["dead"])


@pytest.mark.slow
def test_a_token_is_made_shown_once_and_revoked(visitor: Visitor) -> None:
    """R143: its secret is on one page, and on no other ever after."""
    page = visitor.visit("/tokens")
    page.fill("#name", "a robot")
    page.check("[name=enqueue]")
    page.fill("#queues", "mail, documents")
    page.click("text=Create token")
    secret = page.inner_text(".secret")
    assert re.fullmatch(r"olt_[\w-]{43}", secret)
    assert visitor.served.get("/api/v1/whoami", secret).json()["queues"] == ["documents", "mail"]
    visitor.visit("/tokens")
    assert secret not in page.content()
    page.locator("tr", has_text="a robot").locator("a[data-ask]").click()
    page.click("dialog button.danger")
    page.wait_for_selector(".flash-done")
    eventually(lambda: visitor.served.get("/api/v1/whoami", secret).status_code == 401, timeout=6)


@pytest.mark.slow
def test_what_is_wrong_with_a_token_is_said_in_the_form(visitor: Visitor) -> None:
    page = visitor.visit("/tokens")
    page.fill("#name", "nobody")
    page.uncheck("[name=read]")
    page.fill("#days", "soon")
    page.click("text=Create token")
    assert "days" in page.inner_text("[role=alert]")
    assert page.input_value("#name") == "nobody"
