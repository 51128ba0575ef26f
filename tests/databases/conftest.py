"""Two or more databases, each a SQLite file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from outlast import Databases, Outlast

ROUTE = {"acme": "eu", "globex": "eu", "umbrella": "us"}


@pytest.fixture
def databases(tmp_path: Path) -> Iterator[Databases]:
    made = Databases(
        {name: Outlast(f"sqlite:///{tmp_path / name}.db") for name in ("eu", "us")}, dict(ROUTE)
    )
    for ol in made.by_name.values():
        ol.migrate()
    yield made
    for ol in made.by_name.values():
        ol.close()
