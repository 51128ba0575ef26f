"""One command-line option for each field of a settings class."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import Field, fields
from typing import TypeVar

import click

from ..model.settings import Settings

F = TypeVar("F", bound=Callable[..., object])


def setting_options(kind: type[Settings]) -> Callable[[F], F]:
    """Options with the fields' names, types, helps and defaults; the class validates the values."""

    def with_options(command: F) -> F:
        for spec in reversed(fields(kind)):  # type: ignore[arg-type]
            command = _option(spec)(command)
        return command

    return with_options


def _option(spec: Field[object]) -> Callable[[F], F]:
    flag = f"--{spec.name.replace('_', '-')}"
    about = str(spec.metadata["about"])
    return click.option(
        f"{flag}/--no-{flag[2:]}" if isinstance(spec.default, bool) else flag,
        spec.name,
        type=type(spec.default),
        default=spec.default,
        envvar=variable_name(spec.name),
        show_default=True,
        show_envvar=True,
        help=f"{about[0].upper()}{about[1:]}.",
    )


def is_given(ctx: click.Context, name: str) -> bool:
    """Whether a flag or the environment sets the option; others may be derived from those set."""
    return ctx.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT


def variable_name(name: str) -> str:
    return f"OUTLAST_{name.upper()}"
