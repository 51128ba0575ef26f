"""`outlast serve` and its database: away at the start, back later, or of no use at all."""

from __future__ import annotations

import re
from collections.abc import Iterator

import httpx
import pytest

from outlast.store.schema import latest
from tests.cli.conftest import Program, patiently
from tests.support import Database, Process, Proxy


@pytest.fixture
def latin(database: Database) -> Iterator[str]:
    """The URL of a database with the encoding LATIN1, on the same server."""
    import psycopg

    name = f"latin_{database.schema}"
    with psycopg.connect(database.direct_url, autocommit=True) as admin:
        admin.execute(
            f"CREATE DATABASE {name} ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C'"
            " TEMPLATE template0"
        )
        yield f"{database.direct_url.rpartition('/')[0]}/{name}"
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


def serve(program: Program, url: str, *more: str) -> Process:
    return program.processes.python(
        "outlast", "serve", "--port", "0", *more,
        env={**program.environment, "OUTLAST_URL": url}, cwd=program.folder,
    )  # fmt: skip


@pytest.mark.kinds("postgres")
def test_an_outage_at_the_start_is_told_once_and_so_is_its_end(
    program: Program, database: Database, proxy: Proxy
) -> None:
    """R219: whatever the number of parts, with backoff, the reason, and no traceback."""
    proxy.refuse()
    served = serve(program, proxy.url(database.url), "--log-level", "debug")
    patiently(lambda: served.output().count("DEBUG outlast.service: The database") >= 3)
    tries = re.findall(r"DEBUG outlast.service: .*next try in ([\d.]+) s", served.output())
    waits = [float(wait) for wait in tries]
    assert waits == sorted(waits) and waits[0] <= 1.0 < waits[1], served.output()
    assert len(re.findall("WARNING.* cannot be reached", served.output())) == 1
    url = re.search(r"http://127\.0\.0\.1:\d+", served.output())
    assert url, served.output()
    proxy.accept()
    patiently(lambda: "the database responds again" in served.output())
    answer = httpx.get(f"{url[0]}/api/v1/jobs", timeout=30, trust_env=False)
    assert answer.status_code == 200
    served.terminate()
    assert served.wait(20) == 0
    assert served.output().count("the database responds again") == 1
    assert "Traceback" not in served.output()


@pytest.mark.kinds("postgres")
def test_it_ends_on_a_database_of_another_encoding(program: Program, latin: str) -> None:
    """R219: with the reason, as a worker does."""
    served = serve(program, latin)
    assert served.wait(30) == 1, served.output()
    assert "outlast: the database 'latin_" in served.output()
    assert "--encoding=UTF8 --template=template0" in served.output()
    assert "Traceback" not in served.output()


def test_it_ends_on_tables_that_do_not_fit(program: Program, database: Database) -> None:
    """R176: tables of a release that this one cannot work with."""
    prefix = "outlast_" if database.is_sqlite else ""
    newest = f"WHERE version = {latest()}"
    database.rows(f"UPDATE {prefix}migration SET version = 999, compatible_from = 998 {newest}")
    served = serve(program, database.url)
    assert served.wait(30) == 1, served.output()
    assert re.search(r"^outlast: .*upgrade outlast", served.output(), re.M), served.output()
    assert "Traceback" not in served.output()
