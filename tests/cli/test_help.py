"""Every command explains itself."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from outlast.cli import commands, outlast
from outlast.version import VERSION

every_command = pytest.mark.parametrize("name", commands())


@every_command
def test_every_command_has_a_help_with_an_example(name: str) -> None:
    result = CliRunner().invoke(outlast, [*name.split(), "--help"])
    assert result.exit_code == 0
    assert f"outlast {name}" in result.stdout.split("Options:")[1], "an example"


@every_command
def test_every_option_says_what_it_does(name: str) -> None:
    command = commands()[name]
    silent = [p.opts for p in command.params if isinstance(p, click.Option) and not p.help]
    assert silent == []


@every_command
def test_whatever_prints_data_prints_json(name: str) -> None:
    command = commands()[name]
    options = {option for param in command.params for option in param.opts}
    assert "--url" in options
    assert "--schema" in options or name == "demo"  # which makes one of its own
    assert "--json" in options or name in {"worker", "serve", "source"}


def test_exit_codes_are_told() -> None:
    assert "Exit codes: 0  success" in CliRunner().invoke(outlast, ["--help"]).stdout


def test_the_version_is_told() -> None:
    assert CliRunner().invoke(outlast, ["--version"]).stdout == f"outlast {VERSION}\n"


@pytest.mark.parametrize(
    "arguments", [["nonsense"], ["jobs", "--nonsense"], ["job"], ["jobs", "--state", "lost"]]
)
def test_what_is_written_wrongly_ends_with_2_and_changes_nothing(arguments: list[str]) -> None:
    """R202: unknown keys are rejected."""
    result = CliRunner().invoke(outlast, arguments)
    assert result.exit_code == 2
    assert "Usage:" in result.stderr


@pytest.mark.parametrize(
    ("written", "meant"), [("quues", ": did you mean queues?"), ("frobnicate", ".")]
)
def test_an_unknown_command_is_refused_with_the_nearest_one(written: str, meant: str) -> None:
    result = CliRunner().invoke(outlast, [written], prog_name="outlast")
    assert result.exit_code == 2
    assert result.stderr.endswith(f"Error: There is no command '{written}'{meant}\n")
