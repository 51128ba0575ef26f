"""The command line. One file per group of commands, imported when one of them is asked for."""

from __future__ import annotations

import sys
from contextlib import suppress
from importlib import import_module
from typing import Any

import click

from ..version import VERSION
from .failing import failures_in_words
from .places import schema_option, url_option

# Where each command lives, in the order in which `outlast --help` lists them.
COMMANDS = {
    "worker": "work",
    "migrate": "migrating",
    "enqueue": "enqueueing",
    "jobs": "jobs",
    "job": "job",
    "dead": "jobs",
    "flows": "flow",
    "flow": "flow",
    "cancel": "steering",
    "retry": "steering",
    "reclaim": "steering",
    "forget": "clearing",
    "purge": "clearing",
    "queues": "queues",
    "pause": "queues",
    "resume": "queues",
    "close-breaker": "queues",
    "keep": "queues",
    "workers": "workers",
    "drain": "workers",
    "serve": "serving",
    "token": "token",
    "doctor": "doctor",
    "top": "top",
    "demo": "demo",
    "verify": "verify",
    "bench": "benching",
}


class Commands(click.Group):
    """A group that imports a command's file when the command is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f".{COMMANDS[cmd_name]}", __name__)
        command: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return command

    def invoke(self, ctx: click.Context) -> Any:
        with failures_in_words():
            return super().invoke(ctx)


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="""
    \b
    Exit codes: 0  done
                1  it could not be done, and why is said on standard error
                2  the command was written wrongly

    `outlast COMMAND --help` shows an example of each.
    """,
)
@url_option
@schema_option
@click.version_option(VERSION, prog_name="outlast", message="%(prog)s %(version)s")
def outlast(url: str | None, schema: str | None) -> None:
    """Background jobs that outlast the processes that run them.

    --url and --schema may stand before the command or after it.
    """


def commands() -> dict[str, click.Command]:
    """Every command by the words that call it; those of groups, not the groups."""
    found: dict[str, click.Command] = {}
    for name in COMMANDS:
        command = outlast.get_command(click.Context(outlast), name)
        assert command is not None
        if isinstance(command, click.Group):
            found |= {f"{name} {inner}": each for inner, each in command.commands.items()}
        else:
            found[name] = command
    return found


def main() -> None:
    """The entry point of `outlast` and of `python -m outlast`."""
    for stream in (sys.stdout, sys.stderr):
        # What jobs say may hold characters that this terminal cannot show.
        with suppress(AttributeError, ValueError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    outlast(prog_name="outlast")
