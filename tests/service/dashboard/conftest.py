"""`browser`: somebody who looks at the service's pages."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.service.dashboard.looking import Browser, looking
from tests.service.serving import Served


@pytest.fixture
def browser(served: Served) -> Iterator[Browser]:
    with looking(served) as made:
        yield made
