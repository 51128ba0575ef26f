"""Outlast and the bare database, few jobs: that cells measure what they say, on both stores."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from benchmarks.cells import CELLS, QUICK
from benchmarks.contender import OURS, Contender, found_in
from benchmarks.ground import Ground
from benchmarks.rounds import Plan, measure
from benchmarks.stage import finished, staged
from benchmarks.table import Table
from outlast import Outlast
from outlast.model.ids import new_job_id
from tests.support import Database, Postgres


@pytest.fixture
def ground(database: Database, tmp_path: Path) -> Ground:
    return Ground(tmp_path / "ground", None if database.is_sqlite else database.url)


def ours(database: Database) -> list[Contender]:
    return [contender for contender in found_in(OURS) if contender.store == database.kind]


@pytest.mark.slow
def test_both_are_measured_by_turns(database: Database, ground: Ground) -> None:
    order: list[Any] = []
    plan = Plan(["enqueue-within"], rounds=2, jobs=50)
    results = measure(
        plan, ours(database), ground, lambda cell, n, who, _: order.append((cell, n, who.name))
    )
    assert order == [("enqueue-within", n, name) for n in (0, 1) for name in ("bare", "outlast")]
    for cell in results["cells"].values():
        assert cell["failed"] == {}
        assert all(m["rate"] > 0 for rounds in cell["samples"].values() for m in rounds)
    assert results["contenders"][f"outlast/{database.kind}"]["versions"]["outlast"] != "missing"
    assert results["conditions"]["machine"]["cores"] >= 1


@pytest.mark.slow_on("postgres")
@pytest.mark.parametrize("name", ["bare", "outlast"])
def test_what_was_drained_is_finished_durably(
    database: Database, ground: Ground, name: str
) -> None:
    """Nothing is counted that the table does not hold: every row succeeded, under one claim."""
    (contender,) = [each for each in ours(database) if each.name == name]
    with staged(contender, ground, 150, 20) as stage:
        client = stage.client()
        client.ask("enqueue", n=150, size=100, how="enqueue_many")
        assert client.ask("left")["left"] == 150
        worker = stage.worker()
        finished(client)
        assert worker.ask("seen")["count"] == 150
        with Table(stage.place.url, stage.place.schema).connect() as connection:
            job = "outlast_job" if database.is_sqlite else f'"{stage.place.schema}".job'
            rows = connection.execute(
                f"SELECT state, attempt, fence, CAST(result AS text), count(*) FROM {job}"
                " WHERE started_at <= finished_at AND lease_until IS NULL GROUP BY 1, 2, 3, 4"
            ).fetchall()
    assert rows == [("succeeded", 1, 1, None, 150)]


def test_the_bare_database_finishes_only_under_the_fence(database: Database) -> None:
    """It must not be faster by promising less."""
    table = Table(database.url, database.schema)
    with Outlast(database.url, schema=database.schema) as ol, closing(table.connect()) as link:
        ol.migrate()
        link.execute(table.sql["insert"], {"id": new_job_id(), "args": "{}"})
        if database.is_sqlite:
            ((id, fence, _),) = link.execute(table.sql["claim"], {"limit": 5}).fetchall()
            stale = link.execute(table.sql["finish"], (id, fence - 1)).rowcount
            done = link.execute(table.sql["finish"], (id, fence)).rowcount
        else:
            none = {"ids": [], "fences": [], "run_at": "2000-01-01Z", "id": UUID(int=0), "limit": 5}
            ((_, id, fence, *_),) = link.execute(table.sql["turn"], none).fetchall()
            ((stale, *_),) = link.execute(
                table.sql["turn"], none | {"ids": [id], "fences": [fence - 1]}
            ).fetchall()
            ((done, *_),) = link.execute(
                table.sql["turn"], none | {"ids": [id], "fences": [fence]}
            ).fetchall()
        assert (stale, done) == (0, 1)
        assert ol.counts()["succeeded"] == 1


@pytest.mark.slow
@pytest.mark.kinds("postgres")
def test_a_drain_is_measured(database: Database, ground: Ground) -> None:
    plan = Plan(["drain-2"], rounds=1, jobs=500, concurrency=20)
    results = measure(plan, ours(database), ground, lambda *_: None)
    samples = results["cells"]["drain-2"]["samples"]
    assert set(samples) == {"bare/postgres", "outlast/postgres"}
    assert all(0 < measured["rate"] < 1e6 for (measured,) in samples.values())


@pytest.mark.kinds("sqlite")
def test_latency_and_recovery_are_measured(database: Database, ground: Ground) -> None:
    """R211: how long a killed worker's jobs take to run again is a cell like any other."""
    contenders = [each for each in ours(database) if each.name == "outlast"]
    plan = Plan(["latency", "recovery"], rounds=1, jobs=20)
    results = measure(plan, contenders, ground, lambda *_: None)
    (latency,) = results["cells"]["latency"]["samples"]["outlast/sqlite"]
    assert 0 < latency["p50"] <= latency["p99"]
    (recovery,) = results["cells"]["recovery"]["samples"]["outlast/sqlite"]
    assert 0 < recovery["seconds"] < 30


@pytest.mark.slow
@pytest.mark.kinds("sqlite")
def test_who_cannot_do_a_cell_is_left_out_with_the_reason(
    database: Database, ground: Ground
) -> None:
    results = measure(Plan(["latency", "wal"], 1, 1), ours(database), ground, lambda *_: None)
    assert results["cells"]["latency"]["left_out"] == {"bare/sqlite": "cannot: wake"}
    assert set(results["cells"]["wal"]["left_out"].values()) == {"not on sqlite"}


@pytest.mark.kinds("postgres")
def test_places_are_gone_afterwards(
    database: Database, tmp_path: Path, postgres_server: Postgres
) -> None:
    """A schema in somebody's database, a database where everybody is measured; also on an error."""
    for databases in (False, True):
        ground = Ground(tmp_path / "ground", database.url, databases=databases)
        with pytest.raises(ZeroDivisionError), ground.place("postgres", 1) as place:
            contender = next(each for each in ours(database) if each.name == "bare")
            with staged(contender, ground, 1, 1) as stage:
                stage.client()
            assert Path(place.folder).is_dir()
            raise ZeroDivisionError
        assert list((tmp_path / "ground").iterdir()) == []
    names = "SELECT nspname FROM pg_namespace UNION ALL SELECT datname FROM pg_database"
    found = [name for (name,) in postgres_server.execute(names)]
    assert [name for name in found if name.startswith("outlast_bench_")] == []


def test_the_quick_cells_are_cells() -> None:
    assert set(QUICK) <= set(CELLS)
