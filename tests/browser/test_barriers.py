"""Pages are there for everybody: whoever cannot see, cannot use a mouse, or has a small screen."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import Any

import pytest

from tests.browser.pages import paths
from tests.browser.visiting import Visitor
from tests.support.browser import axe

PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}
SMALL = {"viewport": {"width": 360, "height": 740}, "is_mobile": True, "has_touch": True}
THEMES = ("light", "dark")
FEWER = "for (const row of document.querySelectorAll('tbody tr:nth-child(n+6)')) row.remove()"
LOOK = """async (theme) => {
  document.documentElement.dataset.theme = theme;
  const colours = {type: "rule", values: ["color-contrast", "link-in-text-block"]};
  const rules = theme === "dark" ? {runOnly: colours} : {};
  const found = await axe.run(document, {resultTypes: ["violations"], ...rules});
  return found.violations.map((one) => `${one.id}: ${one.help}: `
    + one.nodes.slice(0, 3).map((node) => `${node.target} ${node.failureSummary}`).join(" | "));
}"""


def test_a_theme_is_nothing_but_colours() -> None:
    """So that rules of axe about anything else find in one theme what they find in the other."""
    css = (files("outlast.service.dashboard") / "static" / "outlast.css").read_text("utf-8")
    themed = re.findall(r"^.*data-theme.*$", css, re.MULTILINE)
    assert len(themed) == len(THEMES)
    for line in themed:
        assert re.fullmatch(r":root\[data-theme=\"\w+\"\] \{ color-scheme: \w+; \}", line), line
    assert "prefers-color-scheme" not in css


def all_paths(visitor: Visitor) -> list[str]:
    token = visitor.database.rows("SELECT id FROM outlast_token ORDER BY id")[0][0]
    jobs = visitor.stage.jobs
    return paths(running=jobs["running"], dead=jobs["dead"], flow=visitor.stage.flows[0],
                 token=token)  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("window", [{}, PHONE], ids=["desktop", "phone"])
def test_axe_finds_no_barrier_on_any_page_in_either_theme(
    visitor: Visitor, window: dict[str, Any]
) -> None:
    """R167: all of its rules in the light theme, those about colours in the dark one too. Rows of a
    table are alike: the first few of them are looked at."""
    source, found = axe(), dict[str, list[str]]()
    looked_at = visitor.open(**window)
    for path in all_paths(visitor):
        page = visitor.visit(path, looked_at)
        page.evaluate(source)
        page.evaluate(FEWER)
        if problems := [one for theme in THEMES for one in page.evaluate(LOOK, theme)]:
            found[path] = problems
    assert not found, "\n".join(f"{path}: {one}" for path, ones in found.items() for one in ones)


@pytest.mark.slow
def test_the_login_and_a_refusal_have_no_barrier_either(visitor: Visitor) -> None:
    """R167"""
    page = visitor.browser.new_context(reduced_motion="reduce").new_page()
    for path in ("/login", "/jobs", "/nothing"):
        page.goto(f"{visitor.served.url}{path}")
        page.evaluate(axe())
        assert [one for theme in THEMES for one in page.evaluate(LOOK, theme)] == [], path
    page.context.close()


@pytest.mark.slow
def test_axe_notices_a_barrier(visitor: Visitor) -> None:
    page = visitor.visit("/jobs")
    page.evaluate(axe())
    page.evaluate("document.querySelector('main').append(document.createElement('button'))")
    assert page.evaluate(LOOK, "light") != []
    page.evaluate("document.querySelector('main button').remove()")
    page.evaluate("document.querySelector('main h1').style.color = '#222'")
    assert any("contrast" in one for one in page.evaluate(LOOK, "dark"))


@pytest.mark.slow
@pytest.mark.parametrize("window", [PHONE, SMALL], ids=["390", "360"])
def test_no_page_is_wider_than_a_phone(visitor: Visitor, window: dict[str, Any]) -> None:
    """R167: nor is a table: its rows are cards. The drawing of a flow scrolls by itself."""
    page = visitor.open(**window)
    wide, tables = {}, 0
    for path in all_paths(visitor):
        visitor.visit(path, page)
        tables += page.locator("table").count()
        width = page.evaluate("document.documentElement.scrollWidth")
        if width > window["viewport"]["width"] or page.evaluate(WIDEST):
            wide[path] = (width, page.evaluate(WIDEST))
    assert not wide
    assert tables > 10


# What sticks out of the window, or of a table; a hidden heading is cut off on purpose.
WIDEST = """[...document.querySelectorAll("main *")]
  .filter((one) => !one.closest(".graph, thead, .unseen, pre")
    && (one.getBoundingClientRect().right > innerWidth + 1
        || (one.matches(".scroll, tr, td, th") && one.scrollWidth > one.clientWidth + 1)))
  .slice(0, 3).map((one) => one.outerHTML.slice(0, 160))"""


# Drop the rules of cards.
NO_CARDS = """for (const sheet of document.styleSheets) {
  for (let place = sheet.cssRules.length - 1; place >= 0; place -= 1) {
    if (sheet.cssRules[place].cssText.includes("attr(data-label)")) sheet.deleteRule(place);
  }
}"""


@pytest.mark.slow
@pytest.mark.parametrize("window", [PHONE, SMALL], ids=["390", "360"])
def test_tables_that_are_no_cards_are_wider_than_a_phone(
    visitor: Visitor, window: dict[str, Any]
) -> None:
    """The test above would notice."""
    page = visitor.visit("/jobs", visitor.open(**window))
    assert page.evaluate(WIDEST) == []
    page.evaluate(NO_CARDS)
    assert page.evaluate(WIDEST) != []


@pytest.mark.slow
def test_a_row_is_a_card_with_a_word_for_each_value(visitor: Visitor) -> None:
    """R167: one below the other on a phone, beside each other on a desk; a table for a reader of
    the screen in both."""
    page = visitor.visit("/queues", visitor.open(**PHONE))
    cell = page.locator("tbody tr").first.locator("td").nth(1)
    label = cell.evaluate("one => getComputedStyle(one, '::before').content")
    assert label == '"Ready"'
    tops = "row => [...row.children].map((one) => one.getBoundingClientRect().top)"
    assert len(set(page.locator("tbody tr").first.evaluate(tops))) > 8
    assert page.get_by_role("row").count() == page.locator("tr").count()
    assert page.get_by_role("columnheader", name="Ready", exact=True).count() == 1
    desk = visitor.visit("/queues")
    assert len(set(desk.locator("tbody tr").first.evaluate(tops))) == 1


def tab_to(page: Any, wanted: str, most: int = 120) -> None:
    """Press Tab until what has the focus has this text."""
    for _ in range(most):
        page.keyboard.press("Tab")
        said = page.evaluate("document.activeElement.matches('a, button') && "
                             "document.activeElement.innerText")  # fmt: skip
        if said and wanted in said:
            return
    pytest.fail(f"nothing that says {wanted!r} can be reached by Tab on {page.url}")


@pytest.mark.slow
def test_main_actions_are_reached_by_keyboard_alone(visitor: Visitor) -> None:
    """R200: redrive a dead job from the dead letter: Tab, Enter, the question, Enter."""
    page = visitor.visit(f"/jobs/{visitor.stage.jobs['dead']}")
    tab_to(page, "Redrive…")
    page.keyboard.press("Enter")
    page.wait_for_selector("dialog[open]")
    assert page.evaluate("document.activeElement.closest('dialog') !== null"), "focus is inside"
    if "Redrive it" not in page.evaluate("document.activeElement.innerText"):
        tab_to(page, "Redrive it", 5)
    page.keyboard.press("Enter")
    page.wait_for_selector(".flash-done")
    assert "redriven" in page.inner_text(".flash-done")
    page = visitor.visit("/queues")
    tab_to(page, "Pause")
    page.keyboard.press("Enter")
    page.wait_for_selector("dialog[open]")
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog", state="detached")
    assert "Pause" in page.evaluate("document.activeElement.innerText"), "focus is back"


@pytest.mark.slow
def test_the_first_tab_skips_the_menu(visitor: Visitor) -> None:
    """R167"""
    page = visitor.visit("/jobs")
    page.keyboard.press("Tab")
    assert "Skip" in page.evaluate("document.activeElement.innerText")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"


@pytest.mark.slow
def test_keys_move_through_rows_search_and_explain_themselves(visitor: Visitor) -> None:
    """R167: and do nothing while somebody types."""
    page = visitor.visit("/jobs")
    focused = "document.activeElement.getAttribute('href')"
    links = page.eval_on_selector_all(
        "main tbody tr", "rows => rows.map(row => row.querySelector('a').getAttribute('href'))"
    )
    page.keyboard.press("j")
    assert page.evaluate(focused) == links[0]
    page.keyboard.press("j")
    assert page.evaluate(focused) == links[1]
    page.keyboard.press("k")
    assert page.evaluate(focused) == links[0]
    page.keyboard.press("?")
    page.wait_for_selector("dialog[open]")
    assert "next row" in page.inner_text("dialog")
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog", state="detached")
    assert page.evaluate(focused) == links[0], "focus is back"
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.name") == "text"
    page.keyboard.type("jk?")
    assert page.input_value("input[name=text]") == "jk?"
    page.keyboard.press("Escape")
    page.focus("body")
