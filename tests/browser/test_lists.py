"""The list of jobs in a browser: it goes on by itself, waits for people, and takes selections."""

from __future__ import annotations

from typing import Any

import pytest

from tests.browser.visiting import Visitor
from tests.store.jobs import end, put, put_and_take
from tests.support import eventually

LIVE = "[data-live-status]:text-is('live')"
PAUSED = "[data-live-status]:has-text('paused')"


def row(job: str) -> str:
    return f"tr[data-id='{job}']"


def open_list(visitor: Visitor, path: str, **settings: Any) -> Any:
    page = visitor.open(**settings)
    visitor.visit(path, page)
    page.wait_for_selector(LIVE)
    page.mouse.move(1, 1)
    return page


@pytest.mark.slow
def test_rows_change_and_come_by_themselves(visitor: Visitor) -> None:
    """R166, R167: the state of a job, and a new one, without a reload; the focus stays."""
    run = visitor.served.ol.store.run
    (first,) = put(run, queue="rows")
    page = open_list(visitor, "/jobs?queue=rows")
    page.evaluate("window.same = true")
    page.focus(f"{row(first.id)} a")
    visitor.served.ol.cancel(first.id)
    page.wait_for_selector(f"{row(first.id)} .state-cancelled")
    (second,) = put(run, queue="rows", args='{"order": 77}')
    page.wait_for_selector(row(second.id))
    assert "order=77" in page.inner_text(row(second.id))
    assert page.evaluate("window.same"), "it was not loaded again"
    assert page.evaluate("document.activeElement.getAttribute('href')") == f"/jobs/{first.id}"
    assert visitor.executed(page) == []


@pytest.mark.slow
def test_a_list_waits_while_somebody_selects_or_writes_a_filter(visitor: Visitor) -> None:
    """R167: nothing moves under a selection; afterwards the list is as it is now."""
    run = visitor.served.ol.store.run
    (first,) = put(run, queue="waits")
    page = open_list(visitor, "/jobs?queue=waits")
    page.check(f"{row(first.id)} input")
    (second,) = put(run, queue="waits")
    page.wait_for_selector(PAUSED)
    assert page.locator(row(second.id)).count() == 0
    assert page.is_checked(f"{row(first.id)} input")
    page.uncheck(f"{row(first.id)} input")
    page.mouse.move(1, 1)
    page.wait_for_selector(row(second.id))
    page.wait_for_selector(LIVE)
    page.focus("input[name=text]")
    (third,) = put(run, queue="waits")
    page.wait_for_selector(PAUSED)
    assert page.locator(row(third.id)).count() == 0
    page.locator("input[name=text]").blur()
    page.wait_for_selector(row(third.id))


@pytest.mark.slow
def test_under_the_pointer_rows_change_in_place(visitor: Visitor) -> None:
    """R167: none comes or moves where somebody is about to click."""
    run = visitor.served.ol.store.run
    (first,) = put(run, queue="pointer")
    page = open_list(visitor, "/jobs?queue=pointer")
    page.hover(f"{row(first.id)} th")
    (second,) = put(run, queue="pointer")
    visitor.served.ol.cancel(first.id)
    page.wait_for_selector(f"{row(first.id)} .state-cancelled")
    assert page.locator(row(second.id)).count() == 0
    page.mouse.move(1, 1)
    page.wait_for_selector(row(second.id))


@pytest.mark.slow
def test_selected_jobs_are_redriven_in_a_dialog(visitor: Visitor) -> None:
    """R166, R167, R200: by mouse and by key, those and no others; also without a script."""
    ol = visitor.served.ol
    claims = [put_and_take(ol.store.run, queue="select") for _ in range(4)]
    for claim in claims:
        end(ol.store.run, claim, "permanent")
    page = open_list(visitor, "/jobs?queue=select")
    buttons = page.locator("#selection button")
    assert [one.is_disabled() for one in buttons.all()] == [True] * 3
    page.check(f"{row(claims[3].id)} input")
    page.focus(f"{row(claims[3].id)} a")
    page.keyboard.press("j")
    page.keyboard.press("x")
    assert page.inner_text("[data-selected]") == "2 selected:"
    page.click("#selection button:text('Redrive')")
    page.wait_for_selector("dialog[open]")
    assert "Redrive 2 jobs?" in page.inner_text("dialog h1")
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog", state="detached")
    assert "Redrive" in page.evaluate("document.activeElement.innerText"), "focus is back"
    page.keyboard.press("Enter")
    page.click("dialog button.primary")
    page.wait_for_selector(".flash-done")
    assert "Redrove 2 jobs." in page.inner_text(".flash-done")
    assert [ol.job(claim.id).state for claim in claims] == ["dead", "dead", "ready", "ready"]
    page.check("[data-select-all]")
    assert page.inner_text("[data-selected]") == "4 selected:"
    plain = visitor.open(java_script_enabled=False)
    visitor.visit("/jobs?queue=select", plain)
    plain.check(f"{row(claims[2].id)} input")
    plain.click("#selection button:text('Cancel')")
    plain.click("text=Cancel it")
    assert "Cancelled 1 job." in plain.inner_text(".flash-done")
    assert ol.job(claims[2].id).state == "cancelled"
    assert visitor.executed(page) == []


@pytest.mark.slow
def test_a_heading_sorts(visitor: Visitor) -> None:
    """R166: oldest first, and back."""
    jobs = [job.id for job in put(visitor.served.ol.store.run, 3, queue="sorted")]
    page = open_list(visitor, "/jobs?queue=sorted")

    def listed() -> list[str]:
        found = page.eval_on_selector_all("tr[data-id]", "rows => rows.map(row => row.dataset.id)")
        return [str(id) for id in found]

    assert listed() == jobs[::-1]
    page.click("a.sort:text('Enqueued')")
    page.wait_for_selector("[aria-sort=ascending]")
    assert listed() == jobs
    page.wait_for_selector(LIVE)
    (more,) = put(visitor.served.ol.store.run, queue="sorted")
    page.mouse.move(1, 1)
    eventually(lambda: listed() == [*jobs, more.id], timeout=15)
    page.click("a.sort:text('Enqueued')")
    page.wait_for_selector("[aria-sort=descending]")
    assert listed() == [more.id, *jobs[::-1]]
