"""docs/reference/cli.md tells of every command, option, default and variable, and of no other."""

from __future__ import annotations

import re

import click

from outlast.cli import commands
from tests.support.processes import ROOT
from tools.docs.cli_reference import reference

PAGE = (ROOT / "docs" / "reference" / "cli.md").read_text()


def test_the_page_is_what_the_commands_say() -> None:
    """R202: after a change, `python -m tools.docs.cli_reference > docs/reference/cli.md`."""
    assert reference() == PAGE


def test_every_command_and_option_has_its_place() -> None:
    """R202: that the page is made from the code would not help if the making left things out."""
    sections = {
        part.partition("\n")[0]: part for part in re.split(r"^## outlast ", PAGE, flags=re.M)
    }
    for name, command in commands().items():
        listed = set(re.findall(r"`(--[a-z-]+)", sections[name].split("```console\n$ outlast")[1]))
        own = {param.opts[0]: param for param in command.params if isinstance(param, click.Option)}
        assert listed == set(own)
        for flag, option in own.items():
            if option.show_default:
                assert re.search(rf"`{flag}\b[^|]*(\\\|[^|]*)*\| `{option.default}` \|", PAGE), flag
