"""A password in a URL is never printed: not by a command that works, not by one that fails."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner

from outlast import Outlast
from outlast.cli import COMMANDS, outlast
from outlast.cli.errors import error_message
from outlast.store.address import parse
from tests.cli.conftest import Program, patiently
from tests.support import Database
from tests.support.tiers import slow_but

SECRET = "hunter2"
ID = "0198c1f2-7d1e-7c3a-9f65-2b1f0c3d4e5f"
ARGUMENTS = {
    "worker": ["no_such_app"],
    "bench": ["--cell", "enqueue", "--jobs", "100", "--rounds", "1"],
    "enqueue": ["some_task"],
    "job": [ID],
    "stream": [ID],
    "flow": [ID],
    "cancel": [ID],
    "retry": [ID],
    "reschedule": ["--delay", "1h", "--yes"],
    "prioritize": ["1", "--yes"],
    "move": ["b", "--queue", "a", "--yes"],
    "reclaim": [ID],
    "forget": [ID],
    "signal": [ID, "some_signal"],
    "signal-link": [ID, "some_signal"],
    "revoke-link": [ID],
    "drain": ["some_worker"],
    "source": ["some_source", "no_such_app"],
    "keep": ["some_queue", "60"],
    "schedule": ["some_schedule"],
    "limit": ["some_queue", "--running", "1"],
    "lanes": ["some_queue"],
    "pause": ["some_queue"],
    "resume": ["some_queue"],
    "close-breaker": ["some_queue"],
    "top": ["--once"],
    "events": ["--stay", "0.2"],
    "token": ["list"],
}
# A server waits for its database, and so is asked for itself: see tests/service/test_limits.py.
every_command = pytest.mark.parametrize(
    "name", [name for name in COMMANDS if name not in {"demo", "verify", "serve"}]
)


def said(name: str, url: str, *, by_variable: bool = False) -> tuple[int, str]:
    arguments = [name, *ARGUMENTS.get(name, [])]
    env: dict[str, str | None] = {"OUTLAST_URL": url if by_variable else None}
    if not by_variable:
        arguments += ["--url", url]
    result = CliRunner().invoke(outlast, arguments, env=env)
    assert isinstance(result.exception, SystemExit | None), result.exception
    return result.exit_code, result.output + result.stderr


def with_password(url: str) -> str:
    parts = urlsplit(url)
    assert parts.username and not parts.password
    return url.replace(f"{parts.username}@", f"{parts.username}:{SECRET}@", 1)


@every_command
@pytest.mark.parametrize("by_variable", [False, True])
def test_a_connection_error_does_not_tell_the_password(
    name: str, by_variable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R198"""
    monkeypatch.setenv("OUTLAST_CONNECT_TIMEOUT", "0.5")
    monkeypatch.setenv("OUTLAST_URL", "")  # put back afterwards, whatever a command sets
    code, text = said(name, f"postgresql://u:{SECRET}@127.0.0.1:1/d", by_variable=by_variable)
    assert code == (0 if name == "sql" else 1)  # which needs no database
    assert SECRET not in text


def test_nor_does_the_demo() -> None:
    """R198: which takes a URL of its own and ignores the variable."""
    code, text = said("demo", f"postgresql://u:{SECRET}@127.0.0.1:1/d")
    assert code == 1
    assert SECRET not in text


@every_command
@pytest.mark.kinds("postgres")
def test_a_command_that_works_does_not_tell_the_password(
    name: str, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R198"""
    monkeypatch.setenv("OUTLAST_URL", "")
    monkeypatch.setenv("OUTLAST_SCHEMA", database.schema)
    _, text = said(name, with_password(database.url))
    assert SECRET not in text
    assert "cannot be reached" not in text


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://u:{SECRET}/x@host/d",  # a slash that should be %2F
        f"postgresql://u:x@{SECRET}@host/d",  # an @ that should be %40
        f"postgresql://u:%zz{SECRET}@host/d",  # a % that should be %25
        f"postgresql://u:{SECRET}",  # no host
        f"postgresql://u:{SECRET}@host:port/d",
        f"postgresql:/u:{SECRET}@host/d",
        f"postgres:u:{SECRET}@host",
        f"mysql://u:{SECRET}@host/d",
        f"password={SECRET} host=h",
        f"sqlite://u:{SECRET}@host/d",
        f"postgresql://u@127.0.0.1:1/d?password={SECRET}&nonsense=1",
        f"postgresql://u@127.0.0.1:1/d?password={SECRET}&sslmode=nonsense",
    ],
)
def test_a_url_that_cannot_be_read_does_not_tell_the_password(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R198: a database library's own complaint would quote it."""
    monkeypatch.setenv("OUTLAST_CONNECT_TIMEOUT", "0.5")
    code, text = said("jobs", url)
    assert code == 1
    assert SECRET not in text
    assert text.startswith("outlast: ")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (f"postgresql://u:{SECRET}@h/d", "postgresql://u@h/d"),
        (f"postgres://u:{SECRET}@h:5/d?password={SECRET}", "postgresql://u@h:5/d"),
        (f"postgresql://u:{SECRET}?#:@h/d", "postgresql://u@h/d"),
        (f"postgresql://:{SECRET}@h1:1,[::1]:2/d", "postgresql://h1:1,[::1]:2/d"),
        (f"POSTGRESQL://u:{SECRET}@/d?host=/tmp", "postgresql://u@/d"),
    ],
)
def test_an_address_is_shown_without_its_password(url: str, shown: str) -> None:
    """R198"""
    address = parse(url, "outlast")
    assert (str(address), repr(address)) == (shown, shown)
    assert SECRET not in repr(Outlast(url))


def test_whatever_an_error_quotes_is_masked() -> None:
    """R198: the last net, for errors that we did not foresee."""
    assert SECRET not in error_message(ValueError(f"bad: postgresql://u:{SECRET}@h/d"))
    assert SECRET not in error_message(ValueError(f"bad: host=h password={SECRET}"))
    assert "\x1b" not in error_message(ValueError("\x1b[2J"))


@pytest.mark.kinds("postgres")
@pytest.mark.parametrize(
    "flags", slow_but([["--processes", "2"]], [[], ["--processes", "2"], ["--log-format", "json"]])
)
def test_a_worker_does_not_log_the_password(
    program: Program, database: Database, flags: list[str], tmp_path: Path
) -> None:
    """R198"""
    worker = program.worker(*flags, "--log-level", "debug", OUTLAST_URL=with_password(database.url))
    with Outlast(database.url, schema=database.schema) as ol:
        patiently(ol.workers, message=worker.output)
    worker.terminate()
    assert worker.wait() == 0
    assert "postgresql://" in worker.output()
    assert SECRET not in worker.output()
