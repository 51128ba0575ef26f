"""A section of a page as steps: files to write, edits, and commands with the answers it promises.

The page is the script, so the two cannot differ. It has these conventions:

    $ outlast job ID            a command; ID and PID stand for values that were printed before
    > It succeeded on …         after the block: the answer of its last command
    # app.py                    first line of a block of code: a file, to be written
    --- shop/settings.py        first line of a diff: lines to change in a file that exists
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.docs.pages import Block, Page

ROOT = Path(__file__).parents[2]
FROM_NOTHING = "From an empty folder to a job that survives kill -9"

_HEADING = re.compile(r"^## (.+)$", re.MULTILINE)
_EDITED = re.compile(r"--- (\S+)\n")
# What differs from run to run: `6b0a…`, the pid 4711, seconds.
_VARIES = re.compile(r"\w*…|\b4711\b|\d+(\.\d+)?(?= s\b)")


@dataclass(frozen=True, slots=True)
class Command:
    text: str
    answer: str | None = None  # as the page quotes it

    @property
    def goes_on(self) -> bool:
        """Whether it keeps its terminal until it is stopped."""
        return re.match(r"(python manage\.py )?outlast worker\b|uvicorn\b", self.text) is not None

    def is_answered_by(self, output: str) -> bool:
        return self.answer is None or answer_pattern(self.answer).search(output) is not None


@dataclass(frozen=True, slots=True)
class NewFile:
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Edit:
    """Replace `before`, which is in the file once, by `after`."""

    name: str
    before: str
    after: str


Step = Command | NewFile | Edit


@dataclass(frozen=True, slots=True)
class UserPath:
    """The sections of a page from the heading `begin` to the next one, or to `end`."""

    page: str
    begin: str = FROM_NOTHING
    end: str | None = None

    def steps(self) -> list[Step]:
        page = Page(ROOT / self.page)
        first, last = self._lines(page)
        blocks = [block for block in page.blocks if first <= block.line < last]
        return [step for block in blocks for step in read_block(page, block)]

    def _lines(self, page: Page) -> tuple[int, int]:
        headings = list(_HEADING.finditer(page.text))
        (begin,) = (found for found in headings if found[1] == self.begin)
        behind = [found for found in headings if found.start() > begin.start()]
        ends = [found for found in behind if self.end in (None, found[1])]
        last = ends[0].start() if ends else len(page.text)
        return line_of(page, begin.start()), line_of(page, last)


PATHS = {
    "plain": UserPath("docs/tutorial/first-job.md", "Set up", "What you saw"),
    "django": UserPath("docs/how-to/django.md"),
    "fastapi": UserPath("docs/how-to/fastapi.md"),
    "celery": UserPath("docs/how-to/migrate-from-celery.md"),
}


def line_of(page: Page, position: int) -> int:
    return page.text.count("\n", 0, position) + 1


def read_block(page: Page, block: Block) -> Iterator[Step]:
    if block.language == "console":
        commands = [line[2:] for line in block.text.splitlines() if line.startswith("$ ")]
        yield from map(Command, commands[:-1])
        yield Command(commands[-1], quote_after(page, block))
    elif block.language == "diff":
        yield read_diff(block.text)
    elif block.file:
        yield NewFile(block.file, block.text)


def quote_after(page: Page, block: Block) -> str | None:
    """The quotation that directly follows a block, as one line."""
    lines = page.text.splitlines()[block.line + block.text.count("\n") :]
    quoted: list[str] = []
    for line in lines:
        if line.startswith("> "):
            quoted.append(line[2:])
        elif line or quoted:
            break
    return " ".join(quoted) or None


def read_diff(text: str) -> Edit:
    header, lines = text.split("\n", 1)[0] + "\n", text.splitlines()[1:]
    edited = _EDITED.fullmatch(header)
    if edited is None:
        raise ValueError(f"a diff of a path begins with `--- FILE`, not with {header.strip()!r}")
    before = [line[1:] for line in lines if not line.startswith("+")]
    after = [line[1:] for line in lines if not line.startswith("-")]
    return Edit(edited[1], "\n".join(before) + "\n", "\n".join(after) + "\n")


def answer_pattern(quote: str) -> re.Pattern[str]:
    """The answer that a page quotes, whatever its numbers and names."""
    constant = (re.escape(part) for part in _VARIES.sub("\0", quote).split("\0"))
    return re.compile(".+".join(constant))
