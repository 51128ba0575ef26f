"""A damaged database is named as such: not as one that cannot be reached."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import psycopg
import pytest
from click.testing import CliRunner

from outlast import CorruptDatabase, Outlast, StoreSettings
from outlast.cli import outlast
from outlast.store.postgres.errors import translate_errors
from outlast.store.sqlite.checkpointer import CHECK_WAL_EVERY_COMMITS
from tests.support import Database, aeventually


def _not_a_database(file: Path) -> None:
    file.write_bytes(b"These are my notes, and no database at all.\n" * 400)


def _truncated(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 3)


def _scribbled_over(file: Path) -> None:
    with file.open("r+b") as open_file:
        open_file.seek(4096)
        open_file.write(b"\xa5" * (file.stat().st_size - 4096))


@pytest.mark.kinds("sqlite")
@pytest.mark.parametrize("damage", [_not_a_database, _truncated, _scribbled_over])
def test_a_damaged_file_is_named_as_such(
    database: Database, damage: Callable[[Path], None]
) -> None:
    """R233: by the library, by a command, by the doctor and by a worker, which does not wait."""
    with Outlast(database.url) as ol:
        greet = ol.task(name="greet")(lambda: None)
        ol.enqueue(*(greet.job() for _ in range(2000)))
        assert ol.store.checkpoint()  # type: ignore[attr-defined]
    damage(database.path)
    with Outlast(database.url) as ol:
        with pytest.raises(CorruptDatabase, match="restore a backup"):
            ol.jobs(limit=100_000)
        with pytest.raises(CorruptDatabase):
            asyncio.run(ol.worker().arun())
    said = CliRunner().invoke(outlast, ["jobs", "--url", database.url])
    assert said.exit_code == 1
    assert "The database is damaged: " in said.stderr
    doctor = CliRunner().invoke(outlast, ["doctor", "--json", "--url", database.url])
    assert doctor.exit_code == 1
    assert [found["name"] for found in json.loads(doctor.stdout)] == ["corrupt"]


@pytest.mark.kinds("postgres")
@pytest.mark.parametrize("code", ["XX001", "XX002"])
def test_damage_that_a_server_finds_is_named_as_such(database: Database, code: str) -> None:
    """R233: data_corrupted and index_corrupted."""
    with (
        database.connect() as connection,
        pytest.raises(CorruptDatabase, match="invalid page"),
        translate_errors(),
    ):
        said = f"RAISE EXCEPTION 'invalid page in block 7' USING ERRCODE = '{code}'"
        connection.execute(f"DO $$ BEGIN {said}; END $$")
    assert issubclass(psycopg.errors.lookup(code), psycopg.InternalError)


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.kinds("sqlite")
def test_a_database_behind_a_link_is_as_private_as_any(tmp_path: Path) -> None:
    """R233: the file that a link leads to, its log, its liveness files, and the new directories."""
    before = os.umask(0o022)
    try:
        (tmp_path / "here").mkdir()
        link, real = tmp_path / "here" / "link.db", tmp_path / "new" / "deep" / "real.db"
        link.symlink_to(real)
        with Outlast(f"sqlite:///{link}") as ol:
            ol.task(name="greet")(lambda: None).enqueue()
            asyncio.run(_seen(ol, real))
    finally:
        os.umask(before)


async def _seen(ol: Outlast, real: Path) -> None:
    workers = Path(f"{real}-workers")
    async with ol.worker():
        proofs = await aeventually(lambda: list(workers.glob("*")))
        for file in (real, Path(f"{real}-wal"), Path(f"{real}-shm"), *proofs):
            assert oct(_mode(file)) == "0o600", file
        for folder in (workers, real.parent, real.parent.parent):
            assert oct(_mode(folder)) == "0o700", folder


@pytest.mark.kinds("sqlite")
def test_a_log_stays_shorter_where_there_is_little_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R179: it takes at most a quarter of what is free, however long it may be elsewhere."""
    free, path = 10**12, tmp_path / "jobs.db"
    monkeypatch.setattr(
        os, "statvfs", lambda path: SimpleNamespace(f_bavail=free, f_frsize=1, f_flag=0)
    )
    with Outlast(f"sqlite:///{path}") as ol:
        ol.migrate()
        greet, made = ol.task(name="greet")(lambda: None), path.stat().st_size
        for _ in range(200):
            greet.enqueue()
        assert path.stat().st_size == made, "8 MB are not there yet"
        free = 1_000_000
        for _ in range(CHECK_WAL_EVERY_COMMITS):
            greet.enqueue()
        assert path.stat().st_size > made


@pytest.mark.kinds("sqlite")
def test_the_log_of_a_database_behind_a_link_stays_short(tmp_path: Path) -> None:
    """R233: the log is beside the file itself, and that is where it is measured."""
    real = tmp_path / "real.db"
    (tmp_path / "link.db").symlink_to(real)
    settings = StoreSettings(checkpoint_pages=100)
    with Outlast(f"sqlite:///{tmp_path / 'link.db'}", settings=settings) as ol:
        ol.migrate()
        made = real.stat().st_size
        greet = ol.task(name="greet")(lambda: None)
        for _ in range(200):
            greet.enqueue()
        assert real.stat().st_size > made  # the log was copied into it
