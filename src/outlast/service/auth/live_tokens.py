"""Live tokens: the hashes of all valid tokens, to detect guesses without a query for each.

After wrong tokens from an address, further ones are not looked up in the database. Other clients
may share the address (an office behind NAT, a proxy), so a valid token must still pass, also at its
first use and after a restart of the service. The set is read once a second, regardless of the
number of guesses.

The time of a set look-up depends on the hash, not on the token: an attacker who measures it learns
about SHA-256 hashes of guesses, which reveal no token.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ...ops import tokens
from ...single_flight import SingleFlight

if TYPE_CHECKING:
    from ..components import Service

READ_INTERVAL_S = 1.0
MAX_READ_SHARE = 0.1  # maximum share of the time spent on reading
MAX_HASHES = 10_000  # hashes of the most recently used or created tokens


class LiveTokens:
    def __init__(self, service: Service) -> None:
        self._service = service
        self._single_flight: SingleFlight[None] = SingleFlight()
        self._hashes: frozenset[str] = frozenset()
        self._fresh_until = 0.0

    async def contains(self, hash: str) -> bool:
        """Whether a token with this hash was valid when the set was read. (The caller still looks
        it up: it may have been revoked since.)"""
        if hash not in self._hashes and time.monotonic() >= self._fresh_until:
            await self._single_flight.run("live", self._read)
        return hash in self._hashes

    async def _read(self) -> None:
        since = time.monotonic()
        self._hashes = await self._service.ol.store.arun(tokens.live_hashes, MAX_HASHES)
        now = time.monotonic()
        self._fresh_until = now + max(READ_INTERVAL_S, (now - since) / MAX_READ_SHARE)
