"""Slots for long-lived requests: limits in total, per token, and per tenant.

Without the last two, one tenant could use up all slots.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ..model.settings import ServiceSettings
from .auth.principals import Principal
from .problems import Throttled, Unavailable

RETRY_AFTER_S = 5.0


@dataclass(frozen=True, slots=True)
class SlotLimits:
    """Limits by the names of their settings, which error messages show."""

    what: str
    total: str
    per_token: str

    def check(
        self, settings: ServiceSettings, who: Principal, taken: int, of_token: int, of_tenant: int
    ) -> None:
        """Refuse a caller that may have no further slot."""
        total = getattr(settings, self.total)
        if taken >= total:
            raise Unavailable(
                f"too many {self.what} are open ({self.total} is {total:,}): try again later",
                RETRY_AFTER_S,
            )
        if who.token is not None and of_token >= (limit := getattr(settings, self.per_token)):
            raise self._refused(f"of this token ({self.per_token} is {limit:,})")
        limit = max(1, math.floor(total * settings.tenant_share))
        if who.tenant is not None and of_tenant >= limit:
            detail = f"tenant_share is {settings.tenant_share:g} of {self.total}, {total:,}"
            raise self._refused(f"of this tenant ({detail})")

    def _refused(self, whose: str) -> Throttled:
        return Throttled(RETRY_AFTER_S, f"too many {self.what} {whose} are open")


EVENT_STREAMS = SlotLimits("event streams", "events_subscribers", "events_per_token")
LIVE_PAGES = SlotLimits("live pages", "events_subscribers", "events_per_token")
WORKER_STREAMS = SlotLimits("streams of remote workers", "max_streams", "streams_per_token")
RESULT_WAITERS = SlotLimits("calls that wait for results", "max_waiters", "waiters_per_token")


class Slots:
    def __init__(self, limits: SlotLimits, settings: ServiceSettings) -> None:
        self._limits = limits
        self._settings = settings
        self._tokens: Counter[str | None] = Counter()
        self._tenants: Counter[str | None] = Counter()

    @property
    def taken(self) -> int:
        return self._tokens.total()

    @contextmanager
    def slot(self, who: Principal) -> Iterator[None]:
        """A slot for the duration of this context; raises `Refused` if the caller may have none."""
        of_token, of_tenant = self._tokens[who.token], self._tenants[who.tenant]
        self._limits.check(self._settings, who, self.taken, of_token, of_tenant)
        with counting(self._tokens, who.token), counting(self._tenants, who.tenant):
            yield


@contextmanager
def counting(counts: Counter[str | None], name: str | None) -> Iterator[None]:
    """Increment the count of this name for the duration of this context."""
    counts[name] += 1
    try:
        yield
    finally:
        counts[name] -= 1
        if not counts[name]:
            del counts[name]
