"""Errors of commands: one sentence on standard error, without traceback or password."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

from ..model.errors import InvalidOption, OutlastError


class CommandFailed(click.ClickException):
    """A command failed."""

    exit_code = 1

    def show(self, file: object = None) -> None:
        click.echo(f"outlast: {self.message}", err=True)


class InvalidUsage(CommandFailed):
    """A value on the command line is out of range, or options contradict each other."""

    exit_code = 2


@contextmanager
def as_usage_errors() -> Iterator[None]:
    """Report an option that the library rejects as a usage error."""
    try:
        yield
    except InvalidOption as error:
        raise InvalidUsage(error_message(error)) from error


@contextmanager
def errors_as_messages() -> Iterator[None]:
    try:
        yield
    except OutlastError as error:
        raise CommandFailed(error_message(error)) from error


def error_message(error: BaseException) -> str:
    """An error's message without control characters and secrets."""
    from ..worker.logs import redact

    return printable(redact(str(error) or type(error).__name__))


def printable(text: str) -> str:
    """Untrusted text with its control characters escaped."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char == "\n" else ascii(char)[1:-1] for char in text
    )


def one_line(text: str) -> str:
    """Untrusted text on one line, so that it cannot imitate our own output."""
    return printable(text).replace("\n", "\\n")


def quoted_block(text: str) -> str:
    """Untrusted lines, marked as a quotation."""
    return "\n".join(f"  │ {line}".rstrip() for line in printable(text).rstrip().split("\n"))
