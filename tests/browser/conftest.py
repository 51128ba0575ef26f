"""`visitor`: a browser in front of a service whose database holds a day's work, or malice.

Everything here is sync and of one module: while the browser is open, its thread has an event loop
that runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from outlast import Outlast
from tests.browser.seeding import a_day
from tests.browser.visiting import Visitor
from tests.service.serving import serving
from tests.support.browser import chromium
from tests.support.databases import Database, sqlite_database


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as opened:
        yield opened


@contextmanager
def visiting(browser: Any, database: Database, stage: Any) -> Iterator[Visitor]:
    with Outlast(database.url) as ol, serving(ol) as served:
        visitor = Visitor(browser, served, stage, database)
        try:
            yield visitor
        finally:
            visitor.close()


@pytest.fixture(scope="module")
def visitor(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Visitor]:
    database = sqlite_database(Path(tmp_path_factory.mktemp("day")))
    stage = a_day(database)
    with visiting(browser, database, stage) as made:
        yield made
