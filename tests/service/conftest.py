"""`served`: the service on the test's database, in a real server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from outlast import Outlast
from tests.service.serving import Served, serving
from tests.support import Database


@pytest.fixture
def ol(database: Database) -> Iterator[Outlast]:
    with Outlast(database.url, schema=database.schema) as opened:
        opened.migrate()
        yield opened


@pytest.fixture
def served(ol: Outlast) -> Iterator[Served]:
    with serving(ol) as running:
        yield running
