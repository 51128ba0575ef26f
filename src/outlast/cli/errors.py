"""Errors of commands on standard error, without traceback or password: a sentence, or one line of
JSON where the command prints JSON."""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path

import click

from ..model.errors import InvalidOption, OutlastError, StoreUnavailable

OUTPUT_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}
REACH_HINT = "Check that it runs, and that --url or OUTLAST_URL leads there."


class CommandFailed(click.ClickException):
    """A command failed."""

    exit_code = 1

    def show(self, file: object = None) -> None:
        click.echo(f"outlast: {self.message}", err=True)


class InvalidUsage(CommandFailed):
    """A value on the command line is out of range, or options contradict each other."""

    exit_code = 2


class JsonFailure(click.ClickException):
    """A command with `--json` failed: its error as one line of JSON."""

    exit_code = 1

    def __init__(self, error: click.ClickException | click.Abort) -> None:
        message = error.message if isinstance(error, click.ClickException) else "Aborted."
        if isinstance(error, click.UsageError):
            message = error.format_message()
        super().__init__(message)
        cause = error.__cause__ if isinstance(error, CommandFailed) else error
        self.fields = error_fields(cause or error, message)

    def show(self, file: object = None) -> None:
        click.echo(json.dumps({"error": self.fields}), err=True)


class JsonUsageFailure(JsonFailure):
    """The same for a usage error."""

    exit_code = 2


@contextmanager
def errors_as_json(wanted: bool) -> Iterator[None]:
    """Report errors as JSON, if requested."""
    try:
        yield
    except (click.ClickException, click.Abort) as error:
        if not wanted or isinstance(error, JsonFailure | click.exceptions.NoArgsIsHelpError):
            raise
        code = getattr(error, "exit_code", JsonFailure.exit_code)
        kind = JsonUsageFailure if code == JsonUsageFailure.exit_code else JsonFailure
        raise kind(error) from error


def wants_json(args: Sequence[str]) -> bool:
    """Whether a command line asks for JSON, even if it cannot be parsed."""
    return "--json" in takewhile(lambda word: word != "--", args)


def error_fields(error: BaseException, message: str | None = None) -> dict[str, object]:
    """An error as JSON fields, the same in every command."""
    text = str(error) if message is None else message
    return {"type": type(error).__name__, "message": _safe(text or type(error).__name__)}


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
        raise CommandFailed(advice(error)) from error
    except OSError as error:
        raise CommandFailed(_surroundings(error)) from error


def _surroundings(error: OSError) -> str:
    """The message of an operating system error of a command: errors of files and connections name
    them, or have types of their own."""
    if error.errno == errno.ENOENT and not _has_working_directory():
        return "The working directory no longer exists: change to another one."
    if error.filename is None and error.errno in OUTPUT_ERRORS:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123  # its buffer would fail again
        return f"The output cannot be written: {error.strerror}."
    raise error


def _has_working_directory() -> bool:
    try:
        Path.cwd()
    except FileNotFoundError:
        return False
    return True


def advice(error: BaseException) -> str:
    """An error's message, and what to check if the database cannot be reached."""
    hint = f" {REACH_HINT}" if isinstance(error, StoreUnavailable) else ""
    return error_message(error) + hint


def error_message(error: BaseException) -> str:
    """An error's message without control characters and secrets."""
    return _safe(str(error) or type(error).__name__)


def _safe(text: str) -> str:
    from ..worker.logs import redact

    return printable(redact(text))


def printable(text: str) -> str:
    """Untrusted text with its control characters escaped."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char == "\n" else ascii(char)[1:-1] for char in text
    )


def one_line(text: str) -> str:
    """Untrusted text on one line, so that it cannot imitate output of the command."""
    return printable(text).replace("\n", "\\n")


def quoted_block(text: str) -> str:
    """Untrusted lines, marked as a quotation."""
    return "\n".join(f"  │ {line}".rstrip() for line in printable(text).rstrip().split("\n"))
