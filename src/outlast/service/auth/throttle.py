"""Throttle: a limited number of wrong tokens per address, refilled within a minute."""

from __future__ import annotations

import ipaddress
import math
import time
from collections import Counter, OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager

MAX_ADDRESSES = 4096
MAX_CONCURRENT_LOOKUPS = 100  # per address
REFILL_S = 60.0


class Throttle:
    """A token bucket per address, refilled within a minute. The least recently used are evicted
    first, so that many addresses cannot fill the memory."""

    def __init__(self, tries: int) -> None:
        self._tries = tries
        self._lookups: Counter[str] = Counter()
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # tries left, time

    def wait(self, address: str) -> float:
        """Seconds until this address may try again; 0: now."""
        left = self._left(_key(address))
        return 0.0 if left >= 1.0 else math.ceil((1.0 - left) * REFILL_S / self._tries)

    def record_failure(self, address: str) -> None:
        key = _key(address)
        self._buckets[key] = max(0.0, self._left(key) - 1.0), time.monotonic()
        self._buckets.move_to_end(key)
        if len(self._buckets) > MAX_ADDRESSES:
            self._buckets.popitem(last=False)

    @contextmanager
    def lookup_slot(self, address: str) -> Iterator[bool]:
        """A slot for a look-up; False if the address has too many. Without the limit, all guesses
        could be sent at once, before the first one is found wrong."""
        key = _key(address)
        if self._lookups[key] >= MAX_CONCURRENT_LOOKUPS:
            yield False
            return
        self._lookups[key] += 1
        try:
            yield True
        finally:
            self._lookups[key] -= 1
            if not self._lookups[key]:
                del self._lookups[key]

    def _left(self, key: str) -> float:
        left, at = self._buckets.get(key, (float(self._tries), 0.0))
        return min(self._tries, left + (time.monotonic() - at) * self._tries / REFILL_S)

    def __len__(self) -> int:
        return len(self._buckets)


def _key(address: str) -> str:
    """An IPv6 network counts as one address: its owner has 2⁶⁴ of them."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address[:100]
    if found.version == 6 and found.ipv4_mapped is None:
        return str(ipaddress.ip_network((found, 64), strict=False))
    return str(getattr(found, "ipv4_mapped", None) or found)
