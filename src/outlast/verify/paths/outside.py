"""What others do to the database, and what they take for it: a file that is replaced, a row that is
spoiled, another file, another encoding."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from ...client import Outlast
from ...model.errors import InvalidInput, StoreError, Unsupported, WrongConnection
from ..place import Place
from ..stage import Stage
from ..workload import Workload
from .path import path

AGAIN = 3  # jobs that are enqueued after the fault


@path("file-replaced", only="sqlite", most=8)
def file_replaced(stage: Stage) -> Iterator[None]:
    """A copy of the database takes its place while it is open. Whatever is acknowledged after that
    is in the copy."""
    place, work = own(stage)
    work.ol.migrate()
    work.mark.enqueue()
    yield
    _replace(_file(place))
    known = _acknowledged(stage, work)
    if missing := known - _stored(place):
        stage.saw("I1", "lost", f"{len(missing)} acknowledged jobs are not in the file")
    work.ol.close()


@path("file-renamed", only="sqlite", most=8)
def file_renamed(stage: Stage) -> Iterator[None]:
    """The file is renamed while it is open: nothing is acknowledged, and none is made anew."""
    place, work = own(stage)
    work.ol.migrate()
    work.mark.enqueue()
    yield
    file = _file(place)
    file.rename(file.with_name("aside.db"))
    if _acknowledged(stage, work):
        stage.saw("I1", "lost", "a job was acknowledged although its file is gone")
    if file.exists():
        stage.saw("I4", "zombie", "a database that was taken away was made anew")
    work.ol.close()


@path("log-deleted", only="sqlite", most=8)
def log_deleted(stage: Stage) -> Iterator[None]:
    """The write-ahead log is deleted alone: what is acknowledged after that is in the file."""
    place, work = own(stage)
    work.ol.migrate()
    work.mark.enqueue()
    yield
    Path(f"{_file(place)}-wal").unlink(missing_ok=True)
    known = _acknowledged(stage, work)
    if missing := known - _stored(place):
        stage.saw("I1", "lost", f"{len(missing)} acknowledged jobs are not in the file")
    work.ol.close()


@path("far-moment", most=8)
def far_moment(stage: Stage) -> Iterator[None]:
    """A date that nobody can read is refused; one that another hand wrote breaks no list."""
    place, work = own(stage)
    work.ol.migrate()
    yield
    with suppress(InvalidInput):
        work.mark.using(at=datetime.max.replace(tzinfo=UTC)).enqueue()
        stage.saw("I2", "poison", "a date at the end of the calendar was accepted")
    job = work.mark.using(delay=3600).enqueue()
    with place.connect_past_proxy() as connection:
        table = f"{place.schema}_job" if place.is_sqlite else f'"{place.schema}".job'
        far = "9e999" if place.is_sqlite else "'infinity'"
        connection.execute(f"UPDATE {table} SET run_at = {far}")  # noqa: S608 - names of ours
        connection.commit()
    try:
        listed = work.ol.jobs()
    except (ValueError, OverflowError, StoreError) as error:
        stage.saw("I2", "poison", f"one bad row breaks every list: {error!r}")
    else:
        if [one.id for one in listed if one.unreadable] != [job.id]:
            stage.saw("I2", "poison", "a row that cannot be read is shown as if it could")
    work.ol.close()


@path("other-file", only="sqlite", most=4)
def other_file(stage: Stage) -> Iterator[None]:
    """The caller's connection leads to another database that has our tables: refused."""
    stage.ol.store.ready()
    _, work = own(stage)
    work.ol.migrate()
    with stage.place.connect() as connection:
        yield
        with suppress(WrongConnection):
            work.mark.using(queue=stage.queue, conn=connection).enqueue()
            stage.saw("I1", "lost", "a job was put into a database where no worker looks for it")
    work.ol.close()


@path("encoding", only="postgres", most=2)
def encoding(stage: Stage) -> Iterator[None]:
    """A database that takes any bytes for text is refused, and nothing is made in it."""
    url = _database_of_bytes(stage)
    yield
    try:
        stage.enqueued(1)  # where it may be: one exchange at least, to be killed in
        if url is not None:
            _see_refused(stage, url)
    finally:
        stage.trap.armed = False
        if url is not None:
            _drop(stage)


def _see_refused(stage: Stage, url: str) -> None:
    ol = Outlast(url, schema=stage.place.schema, settings=stage.ol.store.settings)
    with ol, suppress(Unsupported):
        ol.migrate()
        stage.saw("I4", "zombie", "tables were made in a database that cannot hold our text")


@encoding.again
def drop_database(stage: Stage) -> Iterator[str]:
    _drop(stage)
    yield from ()


def _database_of_bytes(stage: Stage) -> str | None:
    """Its URL; None where this role may make none."""
    import psycopg

    with psycopg.connect(stage.place.url, autocommit=True) as connection:
        may = "SELECT rolcreatedb OR rolsuper FROM pg_roles WHERE rolname = current_user"
        if connection.execute(may).fetchone() != (True,):
            return None
        connection.execute(
            f"CREATE DATABASE {_bytes_name(stage)} ENCODING 'SQL_ASCII' LC_COLLATE 'C'"
            " LC_CTYPE 'C' TEMPLATE template0"
        )
    mark = "&" if "?" in stage.place.url else "?"
    return f"{stage.place.url}{mark}dbname={_bytes_name(stage)}"


def _drop(stage: Stage) -> None:
    import psycopg

    url = stage.place.direct or stage.place.url
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {_bytes_name(stage)} WITH (FORCE)")


def _bytes_name(stage: Stage) -> str:
    return f"{stage.place.schema}_{stage.queue}_bytes"


def own(stage: Stage) -> tuple[Place, Workload]:
    """Tables of its own, asked for with the settings of the stage."""
    place = stage.place.beside(stage.queue)
    return place, Workload(place, **asdict(stage.ol.store.settings))


def _file(place: Place) -> Path:
    return Path(place.url.removeprefix("sqlite:///"))


def _acknowledged(stage: Stage, work: Workload) -> set[str]:
    known = set()
    for _ in range(AGAIN):
        with suppress(StoreError):
            known.add(work.mark.using(queue=stage.queue).enqueue().id)
    return known


def _stored(place: Place) -> set[str]:
    """What a process that starts now would find."""
    with Outlast(place.url, schema=place.schema) as fresh:
        return {job.id for job in fresh.jobs()}


def _replace(file: Path) -> None:
    copy = file.with_name("copy.db")
    with closing(sqlite3.connect(file)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)
    for name in (f"{file}-wal", f"{file}-shm"):
        with suppress(FileNotFoundError):
            os.unlink(name)  # noqa: PTH108 - names, not paths
    copy.replace(file)
