"""All commands, walked: what prints data prints JSON, too; the shell completes them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import click
import pytest

from outlast.cli import outlast

PRINT_NO_DATA = {
    "worker": "logs, also as JSON: --log-format json",
    "source": "logs, also as JSON: --log-format json",
    "serve": "logs, also as JSON: --log-format json",
}


def commands(group: click.Group, path: str = "") -> Iterator[tuple[str, click.Command]]:
    ctx = click.Context(group)
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, f"{path}{name} ")
        else:
            yield f"{path}{name}", command


def test_every_command_that_prints_data_has_json() -> None:
    found = dict(commands(outlast))
    assert len(found) > 40
    without = {
        name
        for name, command in found.items()
        if not any("--json" in option.opts for option in command.params)
    }
    assert without == PRINT_NO_DATA.keys()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_completes_commands(shell: str) -> None:
    """As docs/how-to/shell-completion.md says."""
    program = [
        sys.executable,
        "-c",
        "from outlast.cli import outlast; outlast(prog_name='outlast')",
    ]
    words = {"COMP_WORDS": "outlast wor", "COMP_CWORD": "wor" if shell == "fish" else "1"}
    env = {**os.environ, **words, "_OUTLAST_COMPLETE": f"{shell}_complete"}
    said = subprocess.run(program, env=env, capture_output=True, text=True, check=True).stdout
    assert "worker" in said
    assert "workers" in said
    assert "queues" not in said
