"""An attempt whose job was given, or gives, what is too large for its row."""

from __future__ import annotations

import logging
import random
import time
from abc import abstractmethod
from concurrent.futures import Executor
from functools import partial

from ..model.blob import read
from ..model.errors import BlobUnavailable, NoBlobStore
from ..model.job import Claim
from ..model.lifecycle import Outcome
from ..model.outcome import Ended
from ..model.task import Definition
from ..model.text import describe
from .context import Context
from .held import facts
from .loops import Backoff
from .threads import in_thread

log = logging.getLogger("outlast.worker")

PATIENCE = 30.0  # seconds for which a result that is there waits for a blob store that is not
LONGEST_WAIT = 60.0  # seconds until a job is tried again whose arguments cannot be had here


class Referring:
    def __init__(self, definition: Definition, claim: Claim, context: Context) -> None:
        self.definition = definition
        self.claim = claim
        self.context = context
        self.stopped: Outcome | None = None  # why it was told to stop, if it was

    @property
    def by_reference(self) -> bool:
        """Whether its arguments are to be fetched first. (A call's text is an object.)"""
        return read(self.claim.args) is not None

    def fetch(self) -> None:
        """Get the arguments that the row refers to. It blocks."""
        blob, blobs = read(self.claim.args), self.context.blobs
        assert blob is not None
        if blobs is None:
            raise NoBlobStore(job=self.claim.id, bytes=blob.size)
        text = blobs.text(self.claim.id, blob)
        self.claim = self.context._claim = self.claim._replace(args=text)

    def put_away(self, ended: Ended) -> Ended:
        """Keep by reference what is large of an outcome. It blocks; what the handler did is not
        thrown away because a store cannot be reached for a moment."""
        blobs, backoff = self.context.outlet, Backoff(first=0.2, cap=5.0)
        until = time.monotonic() + PATIENCE
        while blobs is not None and blobs.takes(ended):
            try:
                return blobs.put_outcome(self.claim.hold, ended)
            except BlobUnavailable as error:
                if self.stopped is not None or time.monotonic() > until:
                    return self.raised(error)
                log.warning("job %s: its result waits: %s", self.claim.id, error,
                            extra=facts(self.claim))  # fmt: skip
                self.context.cancelled.wait(backoff.failed())
        return ended

    async def afetch(self, threads: Executor) -> None:
        if self.by_reference:
            await in_thread(threads, self.fetch)

    async def aput_away(self, ended: Ended, threads: Executor) -> Ended:
        """In a thread of the worker's, of which there is one for each job in flight: others that
        want a thread do not wait for a store."""
        outlet = self.context.outlet
        if outlet is None or not outlet.takes(ended):
            return ended
        try:
            return await in_thread(threads, partial(self.put_away, ended))
        except BaseException as error:  # told to stop
            return self.raised(error)

    def left_for_others(self, error: NoBlobStore) -> Ended:
        """Never destroyed, never spent: others may have the store. It comes back ever later, by how
        often it was claimed, because what was given back is no attempt."""
        log.error("job %s is left for others: %s", self.claim.id, error, extra=facts(self.claim))
        delay = wait_for_store(self.claim.fence)
        return Ended(Outcome.RELEASED, delay=delay, error=describe(error))

    @abstractmethod
    def raised(self, error: BaseException) -> Ended: ...


def wait_for_store(times: int) -> float:
    """Seconds until it is worth another try, by how often it was tried."""
    return float(min(2.0 ** min(times, 20), LONGEST_WAIT) * random.uniform(0.5, 1.0))
