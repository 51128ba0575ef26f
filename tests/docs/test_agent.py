"""examples/agent runs as it stands, to its end, while its workers are killed."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import Any

import pytest

from tests.docs.pages import ROOT
from tests.support import Process, Processes, Proxy, eventually
from tests.support.browser import chromium

RUN = ROOT / "examples" / "agent" / "run.py"
OWN = {"OPENAI_BASE_URL": None, "OPENAI_API_KEY": None, "AGENT_BUDGET": None, "AGENT_MODEL": None}
LIMIT_S = 240  # beside many other tests; alone, it needs a twentieth of that
# Every text that a turn of the page ever had, in order; a turn that was replaced begins anew.
WATCH = """
window.texts = {};
const note = () => document.querySelectorAll("#turns p").forEach((one) => {
  const texts = (window.texts[one.id] ??= []);
  if (one.seen === undefined) texts.push([]);
  if (one.seen !== one.textContent) texts.at(-1).push(one.seen = one.textContent);
});
document.addEventListener("DOMContentLoaded", () =>
  new MutationObserver(note).observe(document.getElementById("turns"),
    {childList: true, subtree: true, characterData: true}));
"""


def assert_all_held(report: dict[str, Any]) -> None:
    assert report["broken"] == []
    assert report["state"] == "succeeded"
    assert report["effects"] == {"mail to the manager": 1, "refund": 1, "mail to the customer": 1}
    assert (report["approvals"], report["status of the second click"]) == (1, 410)
    assert len(report["turns"]) == 4 and report["turns"][-1].endswith("Done.")
    assert report["turns as shown"] == report["turns"]


@pytest.mark.slow
def test_an_agent_whose_workers_are_killed_finishes_with_each_effect_once(
    processes: Processes,
) -> None:
    """R105, R246, R247, R248: model calls, tools, budget, approval by link, tokens."""
    budget = {**OWN, "AGENT_BUDGET": "30/m"}  # less than the model's own pace, so that it counts
    run = processes.python(RUN, "--json", "--kill-every", "0.6", "--kills", "2", env=budget)
    report = json.loads(run.succeed(timeout=LIMIT_S).splitlines()[-1])
    assert_all_held(report)
    assert report["workers killed"] >= 1
    assert report["least seconds between model calls"] >= 1.9


@pytest.mark.campaign
@pytest.mark.timeout(2 * LIMIT_S)
def test_a_browser_gets_every_token_of_an_agent_that_is_killed_every_two_seconds(
    processes: Processes,
) -> None:
    """R135, R248: in Chromium, whose connection is cut as well: each turn only grows, token by
    token, or begins anew in the attempt that streams it again."""
    run = processes.python(RUN, "--json", "--serve", "--kill-every", "2", env=OWN)
    port, path = eventually(lambda: address(run), timeout=60, message=run.output)
    with Proxy(("127.0.0.1", int(port))) as proxy, chromium() as browser:
        page = browser.new_page()
        page.add_init_script(WATCH)
        page.goto(f"http://127.0.0.1:{proxy.port}{path}")
        for turn in (1, 2):
            page.wait_for_selector(f"#turn-{turn}", timeout=LIMIT_S * 1000)
            proxy.cut()
        page.wait_for_selector("#state:text('finished')", timeout=LIMIT_S * 1000)
        report = eventually(lambda: last_line(run), timeout=60, message=run.output)
        shown = page.locator("#turns p").all_text_contents()
        grown = page.evaluate("window.texts")
    assert_all_held(report)
    assert report["workers killed"] >= 2
    assert shown == report["turns"]
    for number, whole in enumerate(report["turns"], start=1):
        *_, last = lives = grown[f"turn-{number}"]
        assert last[-1] == whole
        for texts in lives:
            assert all(b.startswith(a) for a, b in pairwise(texts)), texts


def address(run: Process) -> tuple[str, str] | None:
    found = re.search(r"^page: http://127\.0\.0\.1:(\d+)(/\S+)$", run.output(), re.MULTILINE)
    return (found[1], found[2]) if found else None


def last_line(run: Process) -> Any:
    """The report, once it is printed."""
    lines = run.output().splitlines()
    return json.loads(lines[-1]) if lines[-1].startswith("{") else None
