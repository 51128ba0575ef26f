"""What the documents show is there: links lead somewhere, and examples are Python."""

from __future__ import annotations

import ast
import re
import textwrap
from pathlib import Path

import pytest

from tests.support.processes import ROOT

DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^\1```", re.MULTILINE | re.DOTALL)

every_document = pytest.mark.parametrize(
    "document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT))
)


@every_document
def test_links_inside_the_project_lead_somewhere(document: Path) -> None:
    broken = [
        link
        for link in LINK.findall(FENCE.sub("", document.read_text()))
        if "://" not in link and not link.startswith("mailto:") and not leads(document, link)
    ]
    assert broken == []


@every_document
def test_python_examples_are_python(document: Path) -> None:
    for _, language, source in FENCE.findall(document.read_text()):
        if language in ("python", "py"):
            # `await` at the top is how an asyncio prompt shows an async call.
            compile(textwrap.dedent(source), document.name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def leads(document: Path, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = document.parent / path if path else document
    if not target.exists():
        return False
    return not anchor or target.suffix != ".md" or anchor in anchors(target)


def anchors(document: Path) -> set[str]:
    """The names that headings get: lower case, without punctuation, dashes for spaces."""
    headings = re.findall(r"^#+ +(.+?) *$", FENCE.sub("", document.read_text()), re.MULTILINE)
    words = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.replace(" ", "-") for heading in words}
