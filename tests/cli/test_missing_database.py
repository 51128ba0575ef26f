"""Reading creates nothing: no file, no directory, no schema, no tables."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from outlast import NoDatabase, Outlast
from outlast.cli import outlast
from tests.support import Database, aeventually

pytestmark = pytest.mark.fresh

ID = "0198c1f2-7d1e-7c3a-9f65-2b1f0c3d4e5f"
READING = [
    ["jobs"],
    ["job", ID],
    ["dead"],
    ["flows"],
    ["flow", ID],
    ["queues"],
    ["workers"],
    ["top", "--once"],
    ["token", "list"],
]
STEERING = [
    ["cancel", ID],
    ["retry", ID],
    ["reclaim", ID],
    ["forget", ID],
    ["purge", "--yes"],
    ["move", "b", "--queue", "a", "--yes"],
    ["pause", "mail"],
    ["resume", "mail"],
    ["keep", "mail", "60"],
    ["drain", "somebody"],
    ["token", "revoke", ID],
    ["token", "create", "--scope", "read"],
]
VERBS: dict[str, Callable[[Outlast], Any]] = {
    "job": lambda ol: ol.job(ID),
    "jobs": lambda ol: ol.jobs(),
    "counts": lambda ol: ol.counts(),
    "explain": lambda ol: ol.explain(ID),
    "queues": lambda ol: ol.queues(),
    "workers": lambda ol: ol.workers(),
    "result": lambda ol: ol.result(ID, timeout=1),
    "cancel": lambda ol: ol.cancel(ID),
    "acounts": lambda ol: asyncio.run(ol.acounts()),
    "ajobs": lambda ol: asyncio.run(ol.ajobs()),
}


class Nowhere:
    """A place without our tables, and what is there."""

    def __init__(self, database: Database, folder: Path, empty: bool) -> None:
        self.schema, self.url = f"{database.schema}_not", database.url
        self._database, self._folder = database, folder
        if database.is_sqlite:
            file = folder / "deep" / "down" / "x.db"
            self.url = f"sqlite:///{file}"
            if empty:
                file.parent.mkdir(parents=True)
                with closing(sqlite3.connect(file)) as other:
                    other.execute("CREATE TABLE somebody_elses (n)")
        elif empty:
            database.rows(f'CREATE SCHEMA "{self.schema}"')

    def there(self) -> list[object]:
        if self._database.is_sqlite:
            files = sorted(self._folder.rglob("*"))
            return [(file, file.read_bytes() if file.is_file() else b"") for file in files]
        return [
            *self._database.rows(
                "SELECT nspname FROM pg_namespace WHERE nspname = %s", [self.schema]
            ),
            *self._database.rows(
                "SELECT tablename FROM pg_tables WHERE schemaname = %s", [self.schema]
            ),
        ]


@pytest.fixture(params=["missing", "empty"])
def nowhere(
    database: Database, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Nowhere]:
    (tmp_path / "place").mkdir()
    place = Nowhere(database, tmp_path / "place", empty=request.param == "empty")
    yield place
    if not database.is_sqlite:
        database.rows(f'DROP SCHEMA IF EXISTS "{place.schema}" CASCADE')


def test_a_command_that_finds_no_database_says_so_and_makes_none(nowhere: Nowhere) -> None:
    """R232: exit code 1, what to do, and not a byte changed."""
    before = nowhere.there()
    for command in [*READING, *STEERING]:
        place = ["--url", nowhere.url, "--schema", nowhere.schema]
        result = CliRunner().invoke(outlast, [*command, *place])
        assert result.exit_code == 1, (command, result.output)
        assert "here is no Outlast database at" in result.stderr, command
        assert "outlast migrate" in result.stderr, command
        assert nowhere.there() == before, command


def test_the_doctor_finds_that_there_is_no_database(nowhere: Nowhere) -> None:
    """R232: as a finding, like everything that it finds."""
    before = nowhere.there()
    place = ["--json", "--url", nowhere.url, "--schema", nowhere.schema]
    result = CliRunner().invoke(outlast, ["doctor", *place])
    assert result.exit_code == 1
    assert [found["name"] for found in json.loads(result.stdout)] == ["missing"]
    assert nowhere.there() == before


def test_a_verb_that_reads_finds_no_database_and_makes_none(nowhere: Nowhere) -> None:
    """R232: the library too, with an error of its own."""
    before = nowhere.there()
    for name, verb in VERBS.items():
        with Outlast(nowhere.url, schema=nowhere.schema) as ol:
            with pytest.raises(NoDatabase, match="There is no Outlast database at"):
                verb(ol)
            assert nowhere.there() == before, name


@pytest.mark.fresh
def test_migrate_enqueue_and_workers_create(database: Database, tmp_path: Path) -> None:
    """R232: those that put jobs there, or are there to run them."""
    places = []
    for name in ("migrate", "enqueue", "worker"):
        if database.is_sqlite:
            places.append((f"sqlite:///{tmp_path}/{name}/x.db", "outlast"))
        else:
            places.append((database.url, f"{database.schema}_{name}"))
    try:
        with Outlast(places[0][0], schema=places[0][1]) as ol:
            ol.migrate()
        with Outlast(places[1][0], schema=places[1][1]) as ol:
            ol.task(name="greet")(lambda: None).enqueue()
        with Outlast(places[2][0], schema=places[2][1]) as ol:
            asyncio.run(_briefly(ol))
        for url, schema in places:
            with Outlast(url, schema=schema) as ol:
                assert "ready" in ol.counts()
    finally:
        if not database.is_sqlite:
            with database.connect() as connection:
                for _, schema in places:
                    connection.execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE')


async def _briefly(ol: Outlast) -> None:
    async def made() -> bool:
        with suppress(NoDatabase):
            return bool(await ol.acounts())
        return False

    async with ol.worker():
        await aeventually(made)
    await ol.aclose()
