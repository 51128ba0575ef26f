"""The documents as data: their fenced blocks, and which of them run.

A page is a session. Its Python blocks run in order, in one namespace, in a fresh folder:

    ```python             runs; `await` may stand at the top, and what a line prints is compared
                          with its comment: `print(2 + 2)  # 4`
    # app.py              as its first line makes a block a file: it is written into the folder
                          and run by itself (by pytest if its name starts with test_)
    ```python notest      does not run; an HTML comment above it says why
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/**/*.md")])

_FENCE = re.compile(r"^( *)```(\w*)([^\n]*)\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"# ([\w/]+\.py)\n")
_REASON = re.compile(r"<!-- *(\S.*?) *-->\s*\Z", re.DOTALL)


@dataclass(frozen=True)
class Block:
    """One fenced block; `line` is that of its first line of text."""

    line: int
    language: str
    flags: str
    text: str
    before: str  # what the page says above it

    @property
    def runs(self) -> bool:
        return self.language == "python" and "notest" not in self.flags.split()

    @property
    def reason(self) -> str | None:
        """The comment that stands directly above the block."""
        found = _REASON.search(self.before)
        return found[1] if found else None

    @property
    def file(self) -> str | None:
        found = _FILE.match(self.text)
        return found[1] if found else None


@dataclass(frozen=True)
class Page:
    path: Path

    @property
    def name(self) -> str:
        return str(self.path.relative_to(ROOT))

    @cached_property
    def text(self) -> str:
        return self.path.read_text("utf-8")

    @cached_property
    def blocks(self) -> list[Block]:
        return [self._block(found) for found in _FENCE.finditer(self.text)]

    @property
    def python(self) -> list[Block]:
        return [block for block in self.blocks if block.runs]

    @property
    def prose(self) -> str:
        return _FENCE.sub("", self.text)

    def files(self) -> dict[str, str]:
        """The files that a reader of this page makes."""
        return {block.file: block.text for block in self.python if block.file}

    def _block(self, found: re.Match[str]) -> Block:
        line = self.text.count("\n", 0, found.start(4)) + 1
        text = textwrap.dedent(found[4])
        return Block(line, found[2], found[3].strip(), text, self.text[: found.start()])
