"""The network face: `outlast serve`. Its flags are the fields of `ServiceSettings`."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import click

from ..model.errors import InvalidOption, Unsupported
from ..model.settings import ServiceSettings
from .apps import find_app
from .places import blobs_option, opened, placed, said_here
from .running_options import Port, log_options, misread
from .settings_options import setting_options, was_said

if TYPE_CHECKING:
    from ..client import Outlast

log = logging.getLogger("outlast.service")


@click.command(
    epilog="""
    \b
    Examples: outlast serve
              outlast serve shop.tasks:ol --host 0.0.0.0 --port 8000

    SIGTERM or Ctrl-C: take no more requests, and let those that are under way end.
    """
)
@click.argument("app", required=False)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    envvar="OUTLAST_HOST",
    show_envvar=True,
    help="Where to listen; beyond this machine only with tokens.",
)
@click.option(
    "--port",
    cls=Port,
    default=8642,
    show_default=True,
    envvar="OUTLAST_PORT",
    help="0: any that is free.",
)
@click.option(
    "--proxy",
    "proxies",
    multiple=True,
    metavar="ADDRESS",
    help="A reverse proxy whose word on who calls is believed.",
)
@setting_options(ServiceSettings)
@log_options
@blobs_option
@placed
@click.pass_context
def serve(
    ctx: click.Context, /, app: str | None, host: str, port: int, proxies: Sequence[str],
    **given: Any,
) -> None:  # fmt: skip
    """Serve the API until told to stop.

    With APP (module:attr) arguments of its tasks are checked when they are enqueued; without it
    they are stored as they are. Until a token is made (`outlast token create`) only callers on this
    machine are served, and need none.
    """
    from ..worker.logs import set_up, tear_down

    place = given.pop("url"), given.pop("schema"), said_here(ctx, "blobs")
    given.pop("blobs")
    level, format = given.pop("log_level"), given.pop("log_format")
    said = {name: value for name, value in given.items() if was_said(ctx, name)}
    settings = ServiceSettings.of(**said)
    set_up(level, format)
    ctx.call_on_close(tear_down)
    for told in misread(os.environ):
        log.warning(told)
    _need_extra()
    with ExitStack() as stack:
        found = stack.enter_context(find_app(app, *place) if app else opened(*place))
        _refuse_open_doors(found, host)
        _introduce(found, settings)
        _serve(found, settings, (host, port), proxies)


def _need_extra() -> None:
    try:
        import httptools  # noqa: F401
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise Unsupported(
            reason="the service needs the extra: pip install 'outlast[serve]'"
        ) from error


def _serve(
    ol: Outlast, settings: ServiceSettings, place: tuple[str, int], proxies: Sequence[str]
) -> None:
    from ..service import service
    from ..service.server import Server

    for number in (signal.SIGTERM, signal.SIGINT):
        # The server stops by itself, and then has the signal do what it did before: nothing more.
        signal.signal(number, lambda *_: None)
    app = service(ol, settings)
    server = Server(
        app,
        host=place[0],
        port=place[1],
        log_config=None,
        ws="none",
        access_log=False,
        server_header=False,
        proxy_headers=bool(proxies),
        forwarded_allow_ips=list(proxies),
        timeout_graceful_shutdown=10,
    )
    server.run()
    if (unusable := app.service.runner.unusable) is not None:
        raise unusable


def _refuse_open_doors(ol: Outlast, host: str) -> None:
    from ..ops.tokens import any_exists
    from ..service.guards import is_loopback

    if is_loopback(host):
        return
    ol.store.ready()
    if not ol.store.run(any_exists):
        raise InvalidOption(
            option="host",
            reason=f"is {host}, which others can reach, and there is no token yet: make one with"
            " `outlast token create`, or listen on 127.0.0.1",
        )


def _introduce(ol: Outlast, settings: ServiceSettings) -> None:
    """Every setting that is in force, in one line."""
    log.info(
        "serving %s, %s",
        ol.store.address,
        ", ".join(f"{f.name}={getattr(settings, f.name)}" for f in fields(ServiceSettings)),
    )
