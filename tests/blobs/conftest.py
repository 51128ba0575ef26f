"""Job systems that keep what is large by reference, in a directory of the test's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from outlast import Outlast
from tests.support import Database

from .keeping import BRIEF, Shelf


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "blobs"


@pytest.fixture
def ol(database: Database, folder: Path) -> Iterator[Outlast]:
    """With a directory."""
    with Outlast(
        database.url, schema=database.schema, settings=BRIEF, blobs=f"file://{folder}"
    ) as opened:
        opened.migrate()
        yield opened


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


@pytest.fixture
def shelved(database: Database, shelf: Shelf) -> Iterator[Outlast]:
    """With a store of one's own."""
    with Outlast(database.url, schema=database.schema, settings=BRIEF, blobs=shelf) as opened:
        yield opened


@pytest.fixture
def without(database: Database) -> Iterator[Outlast]:
    """A process that has none."""
    with Outlast(database.url, schema=database.schema) as opened:
        yield opened
