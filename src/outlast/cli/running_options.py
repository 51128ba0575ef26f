"""What `outlast worker` and `outlast serve` share: they write logs, and listen on ports."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

LEVELS = ("debug", "info", "warning", "error")
PORTS = ("OUTLAST_PORT", "OUTLAST_METRICS_PORT")


class Port(click.Option):
    """A port. Kubernetes tells every container of a service that is called "outlast" by the very
    name of our variable, as an address: that is none of ours, and must not break a pod."""

    def __init__(self, names: Sequence[str], **said: Any) -> None:
        rest = {"type": click.IntRange(0, 65535), "show_envvar": True, **said}
        super().__init__(names, **rest)

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:
        found = super().resolve_envvar_value(ctx)
        return None if found is not None and _is_address(found) else found


def misread(environ: Mapping[str, str]) -> list[str]:
    """Variables of ours that a platform uses for something else."""
    return [
        f"{name}={environ[name]} is an address, as Kubernetes gives one for a service of this name:"
        " it has no effect; say the port with a flag, or give the service another name"
        for name in PORTS
        if _is_address(environ.get(name, ""))
    ]


def _is_address(value: str) -> bool:
    return re.match(r"(tcp|udp|sctp)://", value) is not None


def log_options(command: F) -> F:
    """--log-format and --log-level."""
    format = click.option(
        "--log-format",
        type=click.Choice(["text", "json"]),
        default="text",
        envvar="OUTLAST_LOG_FORMAT",
        show_default=True,
        show_envvar=True,
        help="How log lines look.",
    )
    level = click.option(
        "--log-level",
        type=click.Choice(LEVELS, case_sensitive=False),
        default="info",
        envvar="OUTLAST_LOG_LEVEL",
        show_default=True,
        show_envvar=True,
        help="The least that is logged.",
    )
    return format(level(command))
