"""What goes wrong is said in one sentence on standard error: no traceback, no password."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

from ..model.errors import InvalidOption, OutlastError


class Failed(click.ClickException):
    """Something could not be done."""

    exit_code = 1

    def show(self, file: object = None) -> None:
        click.echo(f"outlast: {self.message}", err=True)


class WrittenWrongly(Failed):
    """A value on the command line is out of range, or options contradict each other."""

    exit_code = 2


@contextmanager
def command_line_values() -> Iterator[None]:
    """An option that the library refuses was written wrongly on the command line."""
    try:
        yield
    except InvalidOption as error:
        raise WrittenWrongly(sentence(error)) from error


@contextmanager
def failures_in_words() -> Iterator[None]:
    try:
        yield
    except OutlastError as error:
        raise Failed(sentence(error)) from error


def sentence(error: BaseException) -> str:
    """An error as it may be shown: nothing that a terminal would obey, nothing secret."""
    from ..worker.logs import redact

    return safe(redact(str(error) or type(error).__name__))


def safe(text: str) -> str:
    """Text that somebody else wrote, with its control characters made visible."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char == "\n" else ascii(char)[1:-1] for char in text
    )


def one_line(text: str) -> str:
    """The same on one line: nothing of it can pass for a line of ours."""
    return safe(text).replace("\n", "\\n")


def block(text: str) -> str:
    """Lines that somebody else wrote, marked as such."""
    return "\n".join(f"  │ {line}".rstrip() for line in safe(text).rstrip().split("\n"))
