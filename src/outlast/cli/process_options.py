"""Log and port options of `outlast worker` and `outlast serve`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., object])

LOG_LEVELS = ("debug", "info", "warning", "error")
PORT_VARIABLES = ("OUTLAST_PORT", "OUTLAST_METRICS_PORT")


class PortOption(click.Option):
    """A port option that ignores an address in its environment variable: for a service named
    "outlast", Kubernetes sets OUTLAST_PORT to an address in every container."""

    def __init__(self, names: Sequence[str], **attrs: Any) -> None:
        rest = {"type": click.IntRange(0, 65535), "show_envvar": True, **attrs}
        super().__init__(names, **rest)

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:
        found = super().resolve_envvar_value(ctx)
        return None if found is not None and _is_address(found) else found


def misread_ports(environ: Mapping[str, str]) -> list[str]:
    """Warnings about port variables that hold a platform's address."""
    return [
        f"{name}={environ[name]} is an address, set by Kubernetes for a service of this name,"
        " and has no effect; pass the port as a flag, or rename the service"
        for name in PORT_VARIABLES
        if _is_address(environ.get(name, ""))
    ]


def _is_address(value: str) -> bool:
    return re.match(r"(tcp|udp|sctp)://", value) is not None


def log_options(command: F) -> F:
    """--log-format and --log-level."""
    format = click.option(
        "--log-format",
        type=click.Choice(["text", "json", "none"]),
        default="text",
        envvar="OUTLAST_LOG_FORMAT",
        show_default=True,
        show_envvar=True,
        help="Format of log lines; none: the app sets up logging itself.",
    )
    level = click.option(
        "--log-level",
        type=click.Choice(LOG_LEVELS, case_sensitive=False),
        default="info",
        envvar="OUTLAST_LOG_LEVEL",
        show_default=True,
        show_envvar=True,
        help="Lowest level that is logged.",
    )
    return format(level(command))
