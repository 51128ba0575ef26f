"""`outlast sql`: the statements, as they are sent."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from outlast.store import open_store
from outlast.store.statements import queries
from tests.cli.conftest import Commands


def test_every_statement_is_listed_with_its_purpose(run: Commands) -> None:
    known = queries("postgres", "outlast").all()
    assert {one["name"]: one["purpose"] for one in run("sql", "--json").json} == {
        query.name: query.purpose for query in known.values()
    }
    said = run("sql").out
    assert all(name in said for name in known)


def test_statements_of_verify_are_not_listed_even_when_it_has_used_them(run: Commands) -> None:
    assert queries("sqlite", "outlast")["outlast.verify:dump_jobs"].sql
    assert not [one["name"] for one in run("sql", "--json").json if ":" in one["name"]]


@pytest.mark.parametrize("dialect", ["postgres", "sqlite"])
def test_a_statement_is_printed_as_it_is_sent(run: Commands, dialect: str) -> None:
    """For the schema that was named; and its parameters by name."""
    query = queries(dialect, "shop")["claim"]
    said = run("sql", "claim", "--dialect", dialect, "--schema", "shop")
    comment, _, told = said.out.partition("\n")
    assert (comment, told) == (f"-- {query.purpose}", f"{query.sql}\n")
    told = run("sql", "claim", "--dialect", dialect, "--schema", "shop", "--json").json
    assert (told["sql"], told["parameters"]) == (query.sql, list(query.parameters))
    assert (told["name"], told["dialect"], told["reads"]) == ("claim", dialect, False)
    assert ("SKIP LOCKED" in query.sql) == (dialect == "postgres")
    assert ('"shop".job' in query.sql) == (dialect == "postgres")


def test_what_is_printed_can_be_executed(run: Commands, tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    store = open_store(f"sqlite:///{path}")
    store.ready()
    store.close()
    printed = run("sql", "counts", "--url", f"sqlite:///{path}", "--schema", "outlast").out
    with sqlite3.connect(path) as connection:
        assert connection.execute(printed).fetchall() == []


def test_a_statement_that_one_database_does_not_need_says_so(run: Commands) -> None:
    said = run("sql", "notify_workers", "--dialect", "sqlite").out
    assert said.endswith("-- Not sent: sqlite does not need it.\n")
    assert run("sql", "notify_workers", "--dialect", "sqlite", "--json").json["sql"] == ""


def test_no_database_is_asked(run: Commands, tmp_path: Path) -> None:
    path = tmp_path / "none.db"
    assert run("sql", "claim", "--url", f"sqlite:///{path}").code == 0
    assert not path.exists()


def test_a_name_that_is_not_there_is_answered_with_the_nearest(run: Commands) -> None:
    said = run("sql", "clam")
    assert said.code == 2
    assert "There is no statement 'clam': did you mean claim?" in said.err
    assert "`outlast sql` lists them all" in run("sql", "xyzzy").err
