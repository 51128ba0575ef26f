"""Workers in this process, on every kind of database, with short timings.

`ol` is an empty job system; `work(ol)` a worker of it, to be used with `async with`.
"""

from __future__ import annotations

import pytest

from outlast.loops import Backoff
from outlast.worker import maintenance
from tests.worker.beside import Requests, keep_handlers_short


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Back-off is short, and so is what is only done from time to time: many failures should not
    take long."""
    monkeypatch.setattr(Backoff.__init__, "__defaults__", (0.05, 0.3, 2.0))
    monkeypatch.setattr(maintenance, "RECORD_INTERVAL_S", 1.0)


@pytest.fixture
def short_handlers(monkeypatch: pytest.MonkeyPatch) -> None:
    keep_handlers_short(monkeypatch)


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> Requests:
    return Requests(monkeypatch)
