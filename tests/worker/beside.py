"""What tests of claims beside each other share."""

from __future__ import annotations

import pytest

from outlast.ops.claim import ClaimRequest
from outlast.worker import capacity, finisher
from outlast.worker.finisher import Finisher
from outlast.worker.worker import Worker
from tests.support import aeventually

SLOTS = 10
AT_ONCE = 50


def keep_handlers_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine is, handlers are short."""
    for module in (finisher, capacity):
        monkeypatch.setattr(module, "SHORT_HANDLER_S", 60.0)
    monkeypatch.setattr(capacity, "AHEAD_S", 1000.0)
    monkeypatch.setattr(capacity, "MAX_AT_ONCE", AT_ONCE)


class Requests:
    """The claims of a worker, and how many are under way."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.under_way = self.most = 0
        self.limits: list[int] = []
        self.beside: list[ClaimRequest] = []
        for name in ("flush_and_claim", "report_and_claim"):
            monkeypatch.setattr(Finisher, name, self._watched(getattr(Finisher, name)))

    def _watched(self, ask: object) -> object:
        async def watched(finisher: Finisher, request: ClaimRequest | None = None) -> object:
            self.under_way += 1
            self.most = max(self.most, self.under_way)
            if request is not None:
                self.limits.append(request.limit)
                if self.under_way > 1:
                    self.beside.append(request)
            try:
                return await ask(finisher, request)  # type: ignore[operator]
            finally:
                self.under_way -= 1

        return watched


async def succeeded(worker: Worker, number: int) -> None:
    await aeventually(lambda: worker.counts["succeeded"] == number, timeout=60)
