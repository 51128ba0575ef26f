from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import Database
from tests.support.app import App


@pytest.fixture
def app(database: Database, tmp_path: Path) -> Iterator[App]:
    app = App.of(database, tmp_path)
    app.ol.migrate()
    yield app
    app.close()
