"""`destination`: a server of somebody else, on a loopback port; `ol`: an empty job system."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.webhooks.receiver import Receiver, receiving


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as open:
        yield open
