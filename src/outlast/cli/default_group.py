"""Command groups that suggest the nearest name for an unknown command, or have a default command:
`outlast schedule NAME` is `outlast schedule show NAME`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from ..model.spelling import did_you_mean


class SpellingGroup(click.Group):
    """A group that suggests the nearest spelling of an unknown command."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, known = args[0] if args else "", self.list_commands(ctx)
        if name and not name.startswith("-") and name not in known:
            whole = f"{self.name} {name}" if ctx.parent else name
            ctx.fail(f"There is no command {whole!r:.80}{did_you_mean(name, known)}")
        return super().resolve_command(ctx, args)


class DefaultGroup(click.Group):
    """A group that passes arguments without a subcommand's name to its default command."""

    def __init__(self, *args: Any, default: str, bare: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.default = default
        self.bare = bare  # the default command needs no argument

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if self._is_for_default(ctx, args):
            args = [self.default, *args]
        return super().parse_args(ctx, args)

    def _is_for_default(self, ctx: click.Context, args: Sequence[str]) -> bool:
        if not args:
            return self.bare
        if args[0] in ctx.help_option_names:
            return False
        return args[0] not in self.commands
