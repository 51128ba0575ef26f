"""A service and those who work for it: in this process, or in processes of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from outlast import Outlast
from tests.remote.fleet import Fleet
from tests.service.serving import Served, serving
from tests.service.streaming import QUICK
from tests.support import Database, Processes


@pytest.fixture
def served(ol: Outlast) -> Iterator[Served]:
    with serving(ol, QUICK) as running:
        yield running


@pytest.fixture
def fleet(ol: Outlast, database: Database, processes: Processes) -> Fleet:
    return Fleet(ol, database, processes)
