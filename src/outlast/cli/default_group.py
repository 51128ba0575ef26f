"""A group with a default command: `outlast schedule NAME` is `outlast schedule show NAME`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click


class DefaultGroup(click.Group):
    """Arguments that do not begin with a subcommand's name go to the default command."""

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
