"""docs/explanation says what the code says."""

from __future__ import annotations

import re

from outlast.model.lifecycle import LEGAL
from outlast.store.dialects import TABLES
from tests.docs.pages import PAGES, ROOT, Page

LIVES = Page(ROOT / "docs" / "explanation" / "how-a-job-lives.md")
PROMISE = (
    "Every committed job runs at least once and reaches a final state. At most one completion is"
    " accepted per attempt. When a process dies, its jobs start again within seconds, wherever it"
    " died."
)


def test_the_legal_transitions_are_those_of_the_code() -> None:
    """R110, R202"""
    shown = re.findall(r"^\| `(\w+)` \| `(\w+)` \| \S", LIVES.text, re.MULTILINE)
    assert sorted(shown) == sorted((a, b) for a, after in LEGAL.items() for b in after)


def test_the_tables_are_those_of_the_code() -> None:
    """R202"""
    section = LIVES.text.split("\n## Tables\n")[1].split("\n## ")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) == TABLES


def test_the_promise_is_the_same_everywhere() -> None:
    for name in ("README.md", "docs/explanation/guarantees.md"):
        said = re.sub(r"\n> ", " ", Page(ROOT / name).text)
        assert PROMISE in said, name


def test_nobody_promises_more() -> None:
    """A handler may run twice: no page may say otherwise."""
    for page in map(Page, [*PAGES, ROOT / "CHANGELOG.md"]):
        assert not re.search(r"exactly[\s-]+once", page.text, re.IGNORECASE), page.name


def test_the_files_that_are_named_exist() -> None:
    for page in map(Page, PAGES):
        for name in re.findall(r"`((?:tests|src|docs|examples)/[\w./-]+)`", page.prose):
            assert (ROOT / name).exists(), f"{page.name} names {name}"
