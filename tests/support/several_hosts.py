"""URLs with two hosts, of which the first one is of no use: dead, or read-only as a standby is."""

from __future__ import annotations

import pytest

from tests.support.databases import Database
from tests.support.postgres import Postgres

DEAD_PORT = 1
FIRST_HOSTS = ("dead", "read-only")


def first_port(kind: str, request: pytest.FixtureRequest) -> int:
    """The port of a host of this kind on this machine."""
    if kind == "dead":
        return DEAD_PORT
    standby: Postgres = request.getfixturevalue("read_only_postgres")
    return standby.port


def with_first_host(database: Database, port: int) -> str:
    """The database's URL, with another host before its own."""
    before, at, rest = database.url.partition("@")
    joint = "&" if "?" in rest else "?"
    return f"{before}{at}127.0.0.1:{port},{rest}{joint}target_session_attrs=read-write"
