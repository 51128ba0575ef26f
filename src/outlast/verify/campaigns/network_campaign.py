"""Base of campaigns that break the network: connections to the server run through a proxy.

Each child has its own proxy in its own process, so that only its own connections break. The checker
connects directly.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import ClassVar
from urllib.parse import quote

from ...model.errors import InvalidOption
from ...store.address import parse
from ...store.dialects import SQLITE
from ..faults.proxied_connection import Upstream
from ..faults.proxy import Inspector, Proxy
from ..results import CampaignResults
from ..workload import Workload
from .campaign import CampaignOptions
from .fault_point_campaign import FaultCampaign

ENCRYPTED_MODES = ("require", "verify-ca", "verify-full")
SURVIVED_EXIT_CODE = 7  # exit code of a child that met no fault


class NetworkCampaign(FaultCampaign):
    default_children: ClassVar[int] = 8  # concurrent children: they mostly wait for the server

    def __init__(
        self,
        options: CampaignOptions,
        on_progress: Callable[[CampaignResults], None] = lambda _: None,
    ) -> None:
        require_plain_tcp(options)
        super().__init__(options, on_progress)
        self.max_children = options.at_once or self.default_children

    def campaign(self) -> None:
        self.upstream = upstream_of(self.workspaces.address.url)
        super().campaign()


def require_plain_tcp(options: CampaignOptions) -> None:
    address = parse(options.url, options.schema)
    if address.dialect == SQLITE:
        raise InvalidOption(
            option="url",
            reason="names a SQLite file, which is not reached over a network:"
            " pass a PostgreSQL server, --url postgresql://…",
        )
    from psycopg.conninfo import conninfo_to_dict

    sslmode = conninfo_to_dict(address.url).get("sslmode") or os.environ.get("PGSSLMODE")
    if sslmode in ENCRYPTED_MODES:
        raise InvalidOption(
            option="url",
            reason=f"asks for sslmode={sslmode}, and this campaign has to read what the server"
            " says:"
            " pass a server that allows unencrypted connections",
        )


def upstream_of(url: str) -> Upstream:
    """The server's real address, as libpq finds it in the URL, the environment and its files."""
    import psycopg

    with psycopg.connect(url, connect_timeout=10) as connection:
        host, port = connection.info.host, connection.info.port
        if host.startswith("/"):
            return f"{host}/.s.PGSQL.{port}"
        return connection.info.hostaddr or host, port


def proxied_url(url: str, proxy: Proxy) -> str:
    """The URL of the same database through the proxy; appended values override earlier ones."""
    given = {"host": proxy.host, "hostaddr": proxy.host, "port": proxy.port,
             "sslmode": "disable", "gssencmode": "disable"}  # fmt: skip
    query = "&".join(f"{name}={quote(str(value))}" for name, value in given.items())
    return f"{url}{'&' if '?' in url else '?'}{query}"


@contextmanager
def behind_proxy(work: Workload, upstream: Upstream, inspect: Inspector) -> Iterator[Proxy]:
    """In a child: pass all traffic through the inspector."""
    with Proxy(upstream) as proxy:
        proxy.inspect = inspect
        direct = work.workspace.url
        work.use_prepared(
            replace(work.workspace, url=proxied_url(direct, proxy), direct_url=direct)
        )
        yield proxy


def caller_connection_errors() -> tuple[type[Exception], ...]:
    """The errors that a caller gets when its own connection breaks."""
    import psycopg

    return (psycopg.OperationalError,)


def exit_with(struck: object) -> None:
    """In a child: exit with a code that tells whether a fault occurred."""
    if not struck:
        os._exit(SURVIVED_EXIT_CODE)
