"""Database faults: a replaced file, a damaged row, another database, a wrong encoding."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from ...client.client import Outlast
from ...model.errors import InvalidInput, StoreError, Unsupported, WrongConnection
from ..scenario_context import ScenarioContext
from ..workload import Workload
from ..workspace import Workspace
from .scenario import scenario

JOBS_AFTER_FAULT = 3  # jobs that are enqueued after the fault


@scenario("file-replaced", only_store="sqlite", max_points=8)
def file_replaced(ctx: ScenarioContext) -> Iterator[None]:
    """A copy replaces the open database. Everything acknowledged after that is in the copy."""
    workspace, work = own_workspace(ctx)
    work.ol.migrate()
    work.mark.enqueue()
    yield
    _replace(_file(workspace))
    known = _acknowledged(ctx, work)
    if missing := known - _stored(workspace):
        ctx.report("I1", "lost", f"{len(missing)} acknowledged jobs are not in the file")
    work.ol.close()


@scenario("file-renamed", only_store="sqlite", max_points=8)
def file_renamed(ctx: ScenarioContext) -> Iterator[None]:
    """The open file is renamed: nothing is acknowledged, and no new file is created."""
    workspace, work = own_workspace(ctx)
    work.ol.migrate()
    work.mark.enqueue()
    yield
    file = _file(workspace)
    file.rename(file.with_name("aside.db"))
    if _acknowledged(ctx, work):
        ctx.report("I1", "lost", "a job was acknowledged although its file is gone")
    if file.exists():
        ctx.report("I4", "zombie", "a removed database was created again")
    work.ol.close()


@scenario("log-deleted", only_store="sqlite", max_points=8)
def log_deleted(ctx: ScenarioContext) -> Iterator[None]:
    """The write-ahead log alone is deleted: what is acknowledged after that is in the file."""
    workspace, work = own_workspace(ctx)
    work.ol.migrate()
    work.mark.enqueue()
    yield
    Path(f"{_file(workspace)}-wal").unlink(missing_ok=True)
    known = _acknowledged(ctx, work)
    if missing := known - _stored(workspace):
        ctx.report("I1", "lost", f"{len(missing)} acknowledged jobs are not in the file")
    work.ol.close()


@scenario("far-moment", max_points=8)
def far_moment(ctx: ScenarioContext) -> Iterator[None]:
    """An unreadable date is refused; one that another program wrote breaks no list."""
    workspace, work = own_workspace(ctx)
    work.ol.migrate()
    yield
    with suppress(InvalidInput):
        work.mark.using(at=datetime.max.replace(tzinfo=UTC)).enqueue()
        ctx.report("I2", "poison", "a date at the end of the calendar was accepted")
    job = work.mark.using(delay=3600).enqueue()
    with workspace.connect_past_proxy() as connection:
        table = f"{workspace.schema}_job" if workspace.is_sqlite else f'"{workspace.schema}".job'
        far = "9e999" if workspace.is_sqlite else "'infinity'"
        connection.execute(f"UPDATE {table} SET run_at = {far}")  # noqa: S608 - checked names
        connection.commit()
    try:
        listed = work.ol.jobs()
    except (ValueError, OverflowError, StoreError) as error:
        ctx.report("I2", "poison", f"one bad row breaks every list: {error!r}")
    else:
        if [one.id for one in listed if one.unreadable] != [job.id]:
            ctx.report("I2", "poison", "an unreadable row is shown as readable")
    work.ol.close()


@scenario("other-file", only_store="sqlite", max_points=4)
def other_file(ctx: ScenarioContext) -> Iterator[None]:
    """A caller's connection to another database with Outlast's tables is refused."""
    ctx.ol.store.ready()
    _, work = own_workspace(ctx)
    work.ol.migrate()
    with ctx.workspace.connect() as connection:
        yield
        with suppress(WrongConnection):
            work.mark.using(queue=ctx.queue, conn=connection).enqueue()
            ctx.report("I1", "lost", "a job was enqueued in a database that no worker polls")
    work.ol.close()


@scenario("encoding", only_store="postgres", max_points=2)
def encoding(ctx: ScenarioContext) -> Iterator[None]:
    """A database without an encoding (SQL_ASCII) is refused, and nothing is created in it."""
    url = _database_of_bytes(ctx)
    yield
    try:
        ctx.enqueue(1)  # at least one exchange to be killed in
        if url is not None:
            _expect_refusal(ctx, url)
    finally:
        ctx.interceptor.armed = False
        if url is not None:
            _drop(ctx)


def _expect_refusal(ctx: ScenarioContext, url: str) -> None:
    ol = Outlast(url, schema=ctx.workspace.schema, settings=ctx.ol.store.settings)
    with ol, suppress(Unsupported):
        ol.migrate()
        ctx.report("I4", "zombie", "tables were created in a database with an unusable encoding")


@encoding.on_retry
def drop_database(ctx: ScenarioContext) -> Iterator[str]:
    _drop(ctx)
    yield from ()


def _database_of_bytes(ctx: ScenarioContext) -> str | None:
    """The URL of a database with the encoding SQL_ASCII; None if this role cannot create it."""
    import psycopg

    with psycopg.connect(ctx.workspace.url, autocommit=True) as connection:
        may = "SELECT rolcreatedb OR rolsuper FROM pg_roles WHERE rolname = current_user"
        if connection.execute(may).fetchone() != (True,):
            return None
        connection.execute(
            f"CREATE DATABASE {_bytes_name(ctx)} ENCODING 'SQL_ASCII' LC_COLLATE 'C'"
            " LC_CTYPE 'C' TEMPLATE template0"
        )
    mark = "&" if "?" in ctx.workspace.url else "?"
    return f"{ctx.workspace.url}{mark}dbname={_bytes_name(ctx)}"


def _drop(ctx: ScenarioContext) -> None:
    import psycopg

    url = ctx.workspace.direct_url or ctx.workspace.url
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {_bytes_name(ctx)} WITH (FORCE)")


def _bytes_name(ctx: ScenarioContext) -> str:
    return f"{ctx.workspace.schema}_{ctx.queue}_bytes"


def own_workspace(ctx: ScenarioContext) -> tuple[Workspace, Workload]:
    """A workspace of the scenario's own, with the settings of the context."""
    workspace = ctx.workspace.sibling(ctx.queue)
    return workspace, Workload(workspace, **asdict(ctx.ol.store.settings))


def _file(workspace: Workspace) -> Path:
    return Path(workspace.url.removeprefix("sqlite:///"))


def _acknowledged(ctx: ScenarioContext, work: Workload) -> set[str]:
    known = set()
    for _ in range(JOBS_AFTER_FAULT):
        with suppress(StoreError):
            known.add(work.mark.using(queue=ctx.queue).enqueue().id)
    return known


def _stored(workspace: Workspace) -> set[str]:
    """The jobs that a new process finds."""
    with Outlast(workspace.url, schema=workspace.schema) as fresh:
        return {job.id for job in fresh.jobs()}


def _replace(file: Path) -> None:
    copy = file.with_name("copy.db")
    with closing(sqlite3.connect(file)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)
    for name in (f"{file}-wal", f"{file}-shm"):
        with suppress(FileNotFoundError):
            os.unlink(name)  # noqa: PTH108 - names, not paths
    copy.replace(file)
