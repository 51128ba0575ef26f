"""Offer book: the offers of this server with their streams and tokens, accepted or not."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...model.claim import Claim, ClaimKey

if TYPE_CHECKING:
    from .stream import WorkerStream

MAX_DISOWNED = 10_000  # late claims that are kept

Attempt = tuple[str, int]  # job and fence


@dataclass(slots=True, eq=False)
class Offer:
    """A claim that is offered to or held by a remote worker. `expires_at` is None once it was
    accepted; `stream` is the last one that its worker opened."""

    claim: Claim
    stream: WorkerStream
    expires_at: float | None = None
    token: str = ""

    @property
    def lapsed(self) -> bool:
        """Whether the worker failed to accept it in time."""
        return self.expires_at is not None and self.expires_at < time.monotonic()


class OfferBook:
    """All offers. Written only by the event loop, except for `disown` in the heartbeat thread."""

    def __init__(self) -> None:
        self._offers: dict[ClaimKey, Offer] = {}
        self._by_token: dict[str, Offer] = {}
        self._unaccepted: set[Attempt] = set()  # claimed in this server's name
        self._disowned: set[Attempt] = set()

    def __len__(self) -> int:
        return len(self._offers) + len(self._unaccepted)

    # Offers

    def claimed(self, claim: Claim) -> bool:
        """Add a claim in this server's name; returns False if it arrived too late, and the
        heartbeat thread has released it."""
        attempt = claim.id, claim.fence
        self._unaccepted.add(attempt)
        if attempt not in self._disowned:
            return True
        self._unaccepted.discard(attempt)
        return False

    def disown(self, claim: Claim) -> bool:
        """From the heartbeat thread: refuse a claim that has not arrived. Returns False if it has.

        Each side first records its decision and then checks the other's, so that never both
        proceed."""
        if len(self._disowned) > MAX_DISOWNED:
            self._disowned.clear()
        self._disowned.add(claim.claim_key[:2])
        if claim.claim_key[:2] not in self._unaccepted:
            return True
        self._disowned.discard(claim.claim_key[:2])
        return False

    def add(self, stream: WorkerStream, claims: Iterable[Claim], expires_at: float | None) -> None:
        """Add offers of a stream. Without an expiry, the worker accepted them before, possibly from
        an older stream that is still open: then both count them."""
        for claim in claims:
            hold = claim.claim_key
            offer = self._offers.setdefault(hold, Offer(claim, stream))
            offer.stream, offer.expires_at = stream, expires_at
            stream.offers[hold] = offer
            if expires_at is None:
                self._unaccepted.discard(hold[:2])

    def adopt(self, stream: WorkerStream, previous: WorkerStream) -> None:
        """Take over the unaccepted offers of the same worker's last poll."""
        for hold, offer in tuple(previous.offers.items()):
            if offer.expires_at is not None:
                offer.stream, stream.offers[hold] = stream, previous.offers.pop(hold)

    def accept(self, hold: ClaimKey) -> None:
        self._unaccepted.discard(hold[:2])
        if (offer := self._offers.get(hold)) and offer.expires_at is not None:
            offer.expires_at = None
            offer.stream.has_room()

    def remove(self, hold: ClaimKey) -> Offer | None:
        """Remove a job that the worker no longer holds."""
        self._unaccepted.discard(hold[:2])
        return self._remove(hold)

    def remove_stream(self, stream: WorkerStream) -> None:
        """Close a stream. Its worker may still have the jobs; the caller withdraws those not
        accepted, which belong to this server until then."""
        for hold, offer in tuple(stream.offers.items()):
            if offer.stream is stream:
                self._remove(hold)
        stream.offers.clear()

    def _remove(self, hold: ClaimKey) -> Offer | None:
        offer = self._offers.pop(hold, None)
        if offer is not None:
            offer.stream.offers.pop(hold, None)
            self._by_token.pop(offer.token, None)
        return offer

    def stream_of(self, hold: ClaimKey) -> WorkerStream | None:
        offer = self._offers.get(hold)
        return offer.stream if offer else None

    # Tokens

    def signed(self, claim: Claim, token: str) -> None:
        """Keep a token, to recognize it without parsing."""
        if offer := self._offers.get(claim.claim_key):
            offer.token = token
            self._by_token[token] = offer

    def claim_of(self, token: str) -> Claim | None:
        offer = self._by_token.get(token)
        return offer.claim if offer else None
