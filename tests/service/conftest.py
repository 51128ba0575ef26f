"""`served`: the service on the test's database, in a real server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from outlast import Outlast
from tests.service.serving import Served, serving


@pytest.fixture
def served(ol: Outlast) -> Iterator[Served]:
    with serving(ol) as running:
        yield running
