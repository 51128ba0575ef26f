"""Progress of commands that take long: one line on standard error, if that is a terminal.

    Retried 12500 of 80000 jobs (15 %), 4s

The line appears after a second, is updated in place, and is removed when the command ends. It is
not written to pipes and logs, nor with `--json`.
"""

from __future__ import annotations

import logging
import shutil
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol, Self, TypeVar

from ..model.humanize import compact_duration, pluralize
from .errors import one_line

FIRST_AFTER_S = 1.0
EVERY_S = 0.5
CLEAR = "\r\x1b[2K"  # the cursor to the left, the line empty

T = TypeVar("T")


class Terminal(Protocol):
    def isatty(self) -> bool: ...
    def write(self, text: str, /) -> object: ...
    def flush(self) -> object: ...


class ProgressLine:
    """The line, for the duration of a block. `doing` says what is done: `Retried`."""

    def __init__(self, doing: str, total: int | None = None, out: Terminal | None = None) -> None:
        self.doing = doing
        self.total = total
        self.done = 0
        self._out = out or sys.stderr
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._began = time.monotonic()

    def __enter__(self) -> Self:
        self._began = time.monotonic()
        if self._out.isatty():
            self._thread = threading.Thread(target=self._draw, name="progress", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def text(self) -> str:
        took = compact_duration(int(time.monotonic() - self._began))
        return f"{self.doing}{self._amount()}, {took}"

    def _amount(self) -> str:
        if self.total is None:
            return f" {pluralize(self.done, 'job')}" if self.done else ""
        share = 100 * min(self.done, self.total) // max(1, self.total)
        return f" {self.done} of {pluralize(self.total, 'job')} ({share} %)"

    def _draw(self) -> None:
        wait, drawn = FIRST_AFTER_S, False
        while not self._ended.wait(wait):
            width = shutil.get_terminal_size().columns - 1
            self._write(CLEAR + self.text()[:width])
            wait, drawn = EVERY_S, True
        if drawn:
            self._write(CLEAR)

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()


def counted_pages(line: ProgressLine, pages: Iterable[Sequence[T]]) -> Iterator[Sequence[T]]:
    """The pages; each counts as done when the next one is requested."""
    for page in pages:
        yield page
        line.done += len(page)


class ProgressHandler(logging.Handler):
    """Shows log records as the text of a progress line."""

    def __init__(self, line: ProgressLine) -> None:
        super().__init__(logging.INFO)
        self._line = line
        self._step = ""

    def emit(self, record: logging.LogRecord) -> None:
        text = one_line(record.getMessage())
        if not text.startswith("…"):
            self._step = text
        self._line.doing = self._step if text == self._step else f"{self._step} {text}"
