"""What campaigns that break the network share: a line to the server that runs through our hands.

Each child has a proxy of its own, in its own process, so that only its own line breaks; whoever
looks afterwards connects directly.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, ClassVar
from urllib.parse import quote

from ..model.errors import InvalidOption
from ..store.address import parse
from ..store.statements import SQLITE
from .campaign import Wish
from .figures import Figures
from .line import Upstream
from .proxy import Inspector, Proxy
from .strikes import Strikes
from .workload import Workload

ENCRYPTED = ("require", "verify-ca", "verify-full")
SURVIVED = 7  # the exit code of a child to which nothing happened


class Networked(Strikes):
    crowd: ClassVar[int] = 8  # children at once: much of the time they wait for the server

    def __init__(self, wish: Wish, watch: Callable[[Figures], None] = lambda _: None) -> None:
        refuse_what_has_no_line(wish)
        super().__init__(wish, watch)
        self.at_once = wish.at_once or self.crowd

    def campaign(self) -> None:
        self.upstream = upstream_of(self.site.address.url)
        super().campaign()


def refuse_what_has_no_line(wish: Wish) -> None:
    address = parse(wish.url, wish.schema)
    if address.dialect == SQLITE:
        raise InvalidOption(
            option="url",
            reason="names a SQLite file, and there is no network to break between us and a file:"
            " give a PostgreSQL server, --url postgresql://…",
        )
    from psycopg.conninfo import conninfo_to_dict

    said = conninfo_to_dict(address.url).get("sslmode") or os.environ.get("PGSSLMODE")
    if said in ENCRYPTED:
        raise InvalidOption(
            option="url",
            reason=f"asks for sslmode={said}, and this campaign has to read what the server says:"
            " give a server to which an unencrypted connection is allowed",
        )


def upstream_of(url: str) -> Upstream:
    """Where the server really is: libpq knows, from the URL, the environment and its files."""
    import psycopg

    with psycopg.connect(url, connect_timeout=10) as connection:
        host, port = connection.info.host, connection.info.port
        if host.startswith("/"):
            return f"{host}/.s.PGSQL.{port}"
        return connection.info.hostaddr or host, port


def through(url: str, proxy: Proxy) -> str:
    """The same database, by way of the proxy. What comes last in a URL counts."""
    given = {"host": proxy.host, "hostaddr": proxy.host, "port": proxy.port,
             "sslmode": "disable", "gssencmode": "disable"}  # fmt: skip
    said = "&".join(f"{name}={quote(str(value))}" for name, value in given.items())
    return f"{url}{'&' if '?' in url else '?'}{said}"


@contextmanager
def by_proxy(work: Workload, upstream: Upstream, inspect: Inspector) -> Iterator[Proxy]:
    """In a child: from now on everything that is said passes the inspector."""
    with Proxy(upstream) as proxy:
        proxy.inspect = inspect
        direct = work.place.url
        work.trust(replace(work.place, url=through(direct, proxy), direct=direct))
        yield proxy


def callers_loss() -> tuple[type[Exception], ...]:
    """What a caller is told of a connection of its own that broke."""
    import psycopg

    return (psycopg.OperationalError,)


def ended(struck: Any) -> None:
    """In a child: say whether anything happened."""
    if not struck:
        os._exit(SURVIVED)
