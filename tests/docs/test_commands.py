"""Commands that the documents show exist, with the options they show."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator

import click
import pytest

from outlast.cli import outlast
from tests.docs.pages import PAGES, ROOT, Page

OURS = re.compile(r"`outlast ([a-z][^`]*)`")
MAKES = re.compile(r"\bmake ([a-z]+)\b")
MANAGE = ["python", "manage.py", "outlast"]
ASSIGNMENT = re.compile(r"[A-Z_]+=")

# The page that is made from the commands themselves has a test of its own.
WRITTEN = [page for page in map(Page, PAGES) if page.path.name != "cli.md"]

every_page = pytest.mark.parametrize("page", WRITTEN, ids=lambda page: page.name)


@every_page
def test_every_outlast_command_that_is_shown_can_be_given(page: Page) -> None:
    """R202"""
    for words in shown(page):
        understand(words)


@every_page
def test_every_make_verb_that_is_shown_exists(page: Page) -> None:
    verbs = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    spans = "\n".join(re.findall(r"`(make [^`]*)`", page.prose))
    lines = "\n".join(block.text for block in page.blocks if block.language == "console")
    assert set(MAKES.findall(spans + "\n" + lines)) <= verbs


def test_make_demo_does_something() -> None:
    """`make demo` is one of the two commands that we promise."""
    makefile = (ROOT / "Makefile").read_text()
    (command,) = re.findall(r"^demo:.*\n\t@\$\(BIN\)/outlast (\w+)", makefile, re.MULTILINE)
    understand([command])


@pytest.mark.parametrize(
    "words", ["wroker app:ol", "worker", "worker app:ol --que a", "jobs --state lost"]
)
def test_the_check_notices_a_command_that_is_wrong(words: str) -> None:
    with pytest.raises(click.UsageError):
        understand(words.split())


def understand(words: list[str]) -> None:
    """Parse a command as `outlast` would, without doing it."""
    group = click.Context(outlast, info_name="outlast")
    name, command, rest = outlast.resolve_command(group, words)
    assert command is not None
    if isinstance(command, click.Group) and not rest:
        return  # a whole family of commands
    command.make_context(name, rest, parent=group)


def shown(page: Page) -> Iterator[list[str]]:
    """Every outlast command on a page, as the words after `outlast`."""
    for text in OURS.findall(" ".join(page.prose.split())):
        yield shlex.split(text)
    for block in page.blocks:
        for line in block.text.splitlines():
            words = _words(block.language, line)
            while words and ASSIGNMENT.match(words[0]):
                words.pop(0)
            if words[:3] == MANAGE:
                # Django's command adds the app to the words of a worker.
                words[:4] = ["outlast", words[3], *(["shop:ol"] if words[3] == "worker" else [])]
            if words and words[0].rpartition("/")[2] == "outlast":
                yield words[1:]


def _words(language: str, line: str) -> list[str]:
    if language == "console" and line.startswith("$ "):
        return shlex.split(line[2:], comments=True)
    if language == "ini" and line.startswith("ExecStart="):
        return shlex.split(line.partition("=")[2])
    if language == "dockerfile" and line.startswith("CMD "):
        words = json.loads(line[4:])
        assert isinstance(words, list)
        return words
    return []
