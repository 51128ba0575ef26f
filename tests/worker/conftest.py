"""Workers in this process, on every kind of database, with short timings.

`ol` is an empty job system; `work(ol)` a worker of it, to be used with `async with`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from outlast import Outlast
from tests.support import Database


@pytest.fixture
def ol(database: Database) -> Iterator[Outlast]:
    with Outlast(database.url, schema=database.schema) as opened:
        yield opened
