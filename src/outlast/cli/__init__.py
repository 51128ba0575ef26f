"""The command line: one module per group of commands, imported on first use."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from importlib import import_module

import click

from ..version import VERSION
from .database_options import schema_option, url_option
from .default_group import SpellingGroup
from .errors import errors_as_json, errors_as_messages, wants_json

JSON_WANTED = "outlast.json"  # whether the command line asks for JSON

# Where each command lives, in the order in which `outlast --help` lists them.
COMMANDS = {
    "worker": "worker",
    "migrate": "migrate",
    "enqueue": "enqueue",
    "jobs": "jobs",
    "job": "job",
    "dead": "jobs",
    "events": "events",
    "stream": "stream",
    "flows": "flow",
    "flow": "flow",
    "cancel": "job_actions",
    "retry": "job_actions",
    "reclaim": "job_actions",
    "signal": "signal",
    "signal-link": "signal_link",
    "revoke-link": "signal_link",
    "reschedule": "job_changes",
    "prioritize": "job_changes",
    "move": "job_changes",
    "forget": "forget",
    "purge": "purge",
    "queues": "queues",
    "pause": "queues",
    "resume": "queues",
    "close-breaker": "queues",
    "keep": "queues",
    "schedules": "schedules",
    "schedule": "schedules",
    "limit": "limits",
    "lanes": "limits",
    "outboxes": "bridges",
    "sources": "bridges",
    "source": "bridges",
    "workers": "workers",
    "drain": "workers",
    "serve": "serve",
    "token": "token",
    "doctor": "doctor",
    "top": "top",
    "sql": "sql",
    "demo": "demo",
    "verify": "verify",
    "bench": "bench",
}


class Commands(SpellingGroup):
    """A group that imports a command's module on first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f".{COMMANDS[cmd_name]}", __name__)
        command: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return command

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: object,
    ) -> click.Context:
        json = wants_json(args)
        with errors_as_json(json), errors_as_messages():
            ctx = super().make_context(info_name, args, parent, **extra)
        ctx.meta[JSON_WANTED] = json
        return ctx

    def invoke(self, ctx: click.Context) -> object:
        with errors_as_json(ctx.meta.get(JSON_WANTED, False)), errors_as_messages():
            return super().invoke(ctx)


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="""
    \b
    Exit codes: 0  success
                1  failure; the reason is on standard error
                2  usage error

    With --json the reason is one line of JSON: {"error": {"type": …, "message": …}}.

    `outlast COMMAND --help` shows examples.
    """,
)
@url_option
@schema_option
@click.version_option(VERSION, prog_name="outlast", message="%(prog)s %(version)s")
def outlast(url: str | None, schema: str | None) -> None:
    """Background jobs that outlast the processes that run them.

    --url and --schema are accepted before and after the command.
    """


def commands() -> dict[str, click.Command]:
    """Every command by its full name; groups are replaced by their subcommands."""
    all_commands: dict[str, click.Command] = {}
    for name in COMMANDS:
        command = outlast.get_command(click.Context(outlast), name)
        assert command is not None
        if isinstance(command, click.Group):
            all_commands |= {f"{name} {inner}": each for inner, each in command.commands.items()}
        else:
            all_commands[name] = command
    return all_commands


def main() -> None:
    """The entry point of `outlast` and of `python -m outlast`."""
    open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        # Output of jobs may hold characters that the terminal's encoding lacks.
        with suppress(AttributeError, ValueError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    outlast(prog_name="outlast")


def open_closed_streams() -> None:
    """Standard streams that the caller closed lead nowhere: a file or connection that took one of
    their descriptors would get what is printed."""
    while (free := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(free, True)
    os.close(free)
    sys.stdin = sys.stdin or open(0, closefd=False)  # noqa: SIM115
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115
