"""The HTTP service: `outlast serve`. Its flags are the fields of `ServiceSettings`."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import click

from ..model.errors import InvalidOption, StoreUnavailable, Unsupported
from ..model.settings import ServiceSettings
from .apps import find_app, load_databases
from .database_options import blobs_option, given_on_command, open_client, with_database_options
from .process_options import PortOption, log_options, misread_ports
from .settings_options import is_given, setting_options

if TYPE_CHECKING:
    from ..client.client import Outlast
    from ..service import DatabasesApp, ServiceApp

log = logging.getLogger("outlast.service")


@click.command(
    epilog="""
    \b
    Examples: outlast serve
              outlast serve shop.tasks:ol --host 0.0.0.0 --port 8000

    SIGTERM or Ctrl-C: accept no more requests and finish those in flight.
    """
)
@click.argument("app", required=False)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    envvar="OUTLAST_HOST",
    show_envvar=True,
    help="Address to listen on; beyond this machine only with tokens.",
)
@click.option(
    "--port",
    cls=PortOption,
    default=8642,
    show_default=True,
    envvar="OUTLAST_PORT",
    help="Port to listen on; 0: any free port.",
)
@click.option(
    "--proxy",
    "proxies",
    multiple=True,
    metavar="ADDRESS",
    help="Reverse proxy whose forwarded client addresses are trusted; repeatable.",
)
@setting_options(ServiceSettings)
@log_options
@blobs_option
@with_database_options
@click.pass_context
def serve(
    ctx: click.Context, /, app: str | None, host: str, port: int, proxies: Sequence[str],
    **given: Any,
) -> None:  # fmt: skip
    """Serve the API until stopped.

    With APP (module:attr), the arguments of its tasks are checked at enqueue; without it they are
    stored unchecked. If APP is several databases (`Databases`), each is served under its name, and
    / shows all of them. Until a token exists (`outlast token create`), only callers on this machine
    are served, and they need none.
    """
    from ..worker.logs import set_up, tear_down

    database = given.pop("url"), given.pop("schema"), given_on_command(ctx, "blobs")
    given.pop("blobs")
    level, format = given.pop("log_level"), given.pop("log_format")
    overrides = {name: value for name, value in given.items() if is_given(ctx, name)}
    settings = ServiceSettings.of(**overrides)
    set_up(level, format)
    ctx.call_on_close(tear_down)
    for warning in misread_ports(os.environ):
        log.warning(warning)
    require_serve_extra()
    from ..service import service, services

    with ExitStack() as stack:
        several = load_databases(app) if app and not any(database) else None
        if several is None:
            found = find_app(app, *database) if app else open_client(*database)
            clients = [stack.enter_context(found)]
            made: ServiceApp | DatabasesApp = service(clients[0], settings)
        else:
            clients = [stack.enter_context(ol) for ol in several.by_name.values()]
            made = services(several, settings)
        _refuse_unauthenticated(clients, host)
        _log_settings(clients, settings)
        _run_server(made, (host, port), proxies)


def require_serve_extra() -> None:
    try:
        import httptools  # noqa: F401
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise Unsupported(
            reason="the service needs the extra: pip install 'outlast[serve]'"
        ) from error


def _run_server(
    app: ServiceApp | DatabasesApp, listen_address: tuple[str, int], proxies: Sequence[str]
) -> None:
    from ..service.server import BoundedServer
    from ..worker.garbage import rarely_collected

    for number in (signal.SIGTERM, signal.SIGINT):
        # The server handles the signal itself, then raises it again: the handler does nothing.
        signal.signal(number, lambda *_: None)
    server = BoundedServer(
        app,
        host=listen_address[0],
        port=listen_address[1],
        log_config=None,
        ws="none",
        access_log=False,
        server_header=False,
        proxy_headers=bool(proxies),
        forwarded_allow_ips=list(proxies),
        timeout_graceful_shutdown=10,
    )
    with rarely_collected():
        server.run()
    if server.unusable is not None:
        raise server.unusable


def _refuse_unauthenticated(clients: Sequence[Outlast], host: str) -> None:
    from ..ops.tokens import any_exists
    from ..service.security import is_loopback

    if is_loopback(host):
        return
    for ol in clients:
        try:
            ol.store.ready()
            exists = ol.store.run(any_exists)
        except StoreUnavailable:
            if len(clients) == 1:
                raise
            continue  # unavailable, one of several: once back, it serves only callers with a token
        if not exists:
            raise InvalidOption(
                option="host",
                reason=f"is {host}, reachable from other machines, and no token exists in"
                f" {ol.store.address}: create one with `outlast token create`, or listen on"
                " 127.0.0.1",
            )


def _log_settings(clients: Sequence[Outlast], settings: ServiceSettings) -> None:
    """Log the effective settings in one line."""
    log.info(
        "serving %s, %s",
        ", ".join(str(ol.store.address) for ol in clients),
        ", ".join(f"{f.name}={getattr(settings, f.name)}" for f in fields(ServiceSettings)),
    )
