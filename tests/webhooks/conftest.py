"""`destination`: a server of somebody else, on a loopback port; `ol`: an empty job system."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from outlast import Outlast
from tests.support import Database
from tests.webhooks.receiver import Receiver, receiving


@pytest.fixture
def ol(database: Database) -> Iterator[Outlast]:
    with Outlast(database.url, schema=database.schema) as opened:
        opened.migrate()
        yield opened


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as open:
        yield open
