"""`folder`: the temporary folder of a campaign that starts a server of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest


@pytest.fixture
def folder() -> Iterator[Path]:
    """Not pytest's own: as root, servers run as another user, and every run of pytest that starts
    meanwhile closes the folder of all runs to other users."""
    with TemporaryDirectory(prefix="outlast-campaign-") as name:
        yield Path(name)
