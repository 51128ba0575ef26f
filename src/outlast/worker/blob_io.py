"""Blob transfer of an attempt: arguments and results too large for the row."""

from __future__ import annotations

import logging
import random
import time
from abc import abstractmethod
from concurrent.futures import Executor
from functools import partial

from ..loops import Backoff
from ..model.blob import parse_reference
from ..model.claim import Claim
from ..model.errors import BlobUnavailable, NoBlobStore
from ..model.lifecycle import Outcome
from ..model.outcome import AttemptEnd
from ..model.safe_text import error_record
from ..model.task import TaskDefinition
from .context import Context
from .in_flight import log_fields
from .threads import in_thread

log = logging.getLogger("outlast.worker")

STORE_WAIT_S = 30.0  # seconds for which a result waits for an unavailable blob store
MAX_RETRY_DELAY_S = 60.0  # seconds until the next try of a job whose arguments are unavailable


class BlobBacked:
    def __init__(self, definition: TaskDefinition, claim: Claim, context: Context) -> None:
        self.definition = definition
        self.claim = claim
        self.context = context
        self.stopped: Outcome | None = None  # why it was asked to stop, if it was

    @property
    def has_blob_arguments(self) -> bool:
        """Whether its arguments must be fetched first. (Inline arguments are a JSON object.)"""
        return parse_reference(self.claim.args) is not None

    def fetch(self) -> None:
        """Fetch the arguments that the row refers to. Blocks."""
        blob, blobs = parse_reference(self.claim.args), self.context.blobs
        assert blob is not None
        if blobs is None:
            raise NoBlobStore(job=self.claim.id, bytes=blob.size)
        text = blobs.text(self.claim.id, blob)
        self.claim = self.context._claim = self.claim._replace(args=text)

    def store_large(self, ended: AttemptEnd) -> AttemptEnd:
        """Store large values of an outcome by reference. Blocks and retries: a short outage of the
        blob store must not discard the handler's work."""
        blobs, backoff = self.context.blob_slots, Backoff(first=0.2, cap=5.0)
        until = time.monotonic() + STORE_WAIT_S
        while blobs is not None and blobs.has_large(ended):
            try:
                return blobs.put_outcome(self.claim.claim_key, ended)
            except BlobUnavailable as error:
                if self.stopped is not None or time.monotonic() > until:
                    return self.raised(error)
                log.warning("job %s: its result waits: %s", self.claim.id, error,
                            extra=log_fields(self.claim))  # fmt: skip
                self.context.cancelled.wait(backoff.failed())
        return ended

    async def afetch(self, threads: Executor) -> None:
        if self.has_blob_arguments:
            await in_thread(threads, self.fetch)

    async def astore_large(self, ended: AttemptEnd, threads: Executor) -> AttemptEnd:
        """Store large values in one of the worker's threads: there is one for each job in flight,
        so no other job waits for the blob store."""
        slots = self.context.blob_slots
        if slots is None or not slots.has_large(ended):
            return ended
        try:
            return await in_thread(threads, partial(self.store_large, ended))
        except BaseException as error:  # asked to stop
            return self.raised(error)

    def released_without_store(self, error: NoBlobStore) -> AttemptEnd:
        """Released unspent: other workers may have the blob store. The delay grows with the number
        of claims, because a release counts no attempt."""
        log.error(
            "job %s is left for other workers: %s",
            self.claim.id, error, extra=log_fields(self.claim),
        )  # fmt: skip
        delay = store_retry_delay(self.claim.fence)
        return AttemptEnd(Outcome.RELEASED, delay=delay, error=error_record(error))

    @abstractmethod
    def raised(self, error: BaseException) -> AttemptEnd: ...


def store_retry_delay(times: int) -> float:
    """Seconds until the next try, by the number of tries."""
    return float(min(2.0 ** min(times, 20), MAX_RETRY_DELAY_S) * random.uniform(0.5, 1.0))
