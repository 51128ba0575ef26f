"""The reference of the command line, made from the commands themselves.

python -m outlast.cli.reference > docs/reference/cli.md
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click

from . import commands
from .places import json_option, schema_option, url_option

INTRODUCTION = """\
# Command line

`outlast COMMAND …`, or `python -m outlast COMMAND …`. This page is written by
`python -m outlast.cli.reference`, and a test compares it with the code.

What was typed wins over the environment, and that over the defaults. `--url` and `--schema` may
stand before the command or after it. With `--json`, jobs look as they do everywhere else
(`Job.as_json()`).

{common}

| exit code | means |
|---|---|
| 0 | done |
| 1 | it could not be done, and why is said on standard error; `doctor`: there are problems |
| 2 | the command was written wrongly |
"""


HEAD = "| option | default | environment | |\n|---|---|---|---|"


def reference() -> str:
    """The whole page."""
    found = commands()
    listed = "\n".join(f"- [`outlast {name}`](#outlast-{name.replace(' ', '-')})" for name in found)
    common = "\n".join([HEAD, *map(_row, _common().values())])
    sections = [_section(name, command) for name, command in found.items()]
    return "\n".join([INTRODUCTION.format(common=common), f"{listed}\n", *sections])


def _common() -> dict[str, click.Option]:
    """The options that nearly every command has, told once."""

    @url_option
    @schema_option
    @json_option
    def command() -> None: ...

    options: list[click.Option] = command.__click_params__  # type: ignore[attr-defined]
    return {option.opts[0]: option for option in reversed(options)}


def _section(name: str, command: click.Command) -> str:
    context = click.Context(command, info_name=f"outlast {name}")
    usage = " ".join(command.get_usage(context).split()).removeprefix("Usage: ")
    parts = [
        f"## outlast {name}",
        inspect.cleandoc(command.help or ""),
        f"```console\n$ {usage}\n```",
        *_options([param for param in command.params if isinstance(param, click.Option)]),
        *_epilog(command.epilog or ""),
    ]
    return "\n\n".join(parts) + "\n"


def _options(options: list[click.Option]) -> Iterator[str]:
    common = {name: _row(option) for name, option in _common().items()}
    shared = [option.opts[0] for option in options if common.get(option.opts[0]) == _row(option)]
    if own := [_row(option) for option in options if option.opts[0] not in shared]:
        yield "\n".join([HEAD, *own])
    if shared:
        also = "Also" if own else "Takes"
        yield f"{also} {', '.join(f'`{name}`' for name in common if name in shared)}."


def _row(option: click.Option) -> str:
    names = ", ".join(f"`{name}{_value(option)}`" for name in option.opts)
    default = f"`{option.default}`" if option.show_default else ""
    variable = f"`{option.envvar}`" if option.envvar else ""
    about = (option.help or "").replace("|", "\\|")
    return f"| {names} | {default} | {variable} | {about} |"


def _value(option: click.Option) -> str:
    """What follows the option's name."""
    if option.is_flag:
        return ""
    if isinstance(option.type, click.Choice):
        shape = "|".join(option.type.choices)
    else:
        shape = option.metavar or option.type.name.split()[0].upper()
    return " " + shape.replace("|", "\\|")  # a bar would end the cell


def _epilog(text: str) -> Iterator[str]:
    """Examples as code, the rest as prose."""
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        lines = paragraph.replace("\b\n", "").strip()
        first, _, rest = lines.partition(": ")
        if first in {"Example", "Examples"}:
            examples = [line.strip() for line in rest.splitlines()]
            yield "```console\n" + "\n".join(f"$ {line}" for line in examples) + "\n```"
        elif lines:
            yield " ".join(lines.split())


if __name__ == "__main__":
    click.echo(reference(), nl=False)
