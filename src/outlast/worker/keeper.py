"""The thread that keeps promises while the event loop is busy: renewals, reclaims, duties.

It has an event loop and connections of its own, so a handler that blocks the worker's loop loses
no lease, and a worker that is up to its ears in work still heals what others left behind.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from ..model.errors import DeadlineExceeded, OutlastError, StoreBusy
from ..model.job import Claim
from ..model.lease_trust import RENEWAL_SHARE
from ..model.lifecycle import Outcome
from ..model.outcome import Ended, release
from ..ops import duties
from ..ops.enqueue import wake
from ..ops.finish import finish
from ..ops.renew import renew
from ..ops.statement import Op
from .execute import timed_out
from .heal import Healer
from .held import SAFETY, facts
from .logs import tear_down
from .loops import Backoff, Loop
from .row_faults import about_a_row, unforeseen

if TYPE_CHECKING:
    from .worker import Worker

T = TypeVar("T")
P = ParamSpec("P")

log = logging.getLogger("outlast.worker")

STILL = 10.0  # seconds without a turn of the worker's loop that are worth a word
PAUSED = 5.0  # seconds between two pulses that mean a pause of us all
SOONEST = 0.01  # seconds between looks at our own leases
LOCK_SHARE = 0.06  # of a lease that a renewal waits for a lock, so that the database can say so
RETRY_SHARE = 0.05  # of a lease until the next try, after somebody's lock was in the way
SHORTEST_LOCK_WAIT_S = 0.1
PATIENCE = 2.0  # seconds that every call may take: less would give up on a busy machine


class Keeper:
    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.settings = worker.settings
        # One connection for our own leases and one for healing: a slow sweep delays no renewal,
        # and a fleet of many workers does not use up what the database has to give.
        wait = max(SHORTEST_LOCK_WAIT_S, worker.settings.lease * LOCK_SHARE)
        self.store = worker.steady.twin(connections=1, lock_timeout=wait)
        self._locked = False  # by somebody, when we last tried to renew
        self.healer = Healer(worker, worker.steady.twin(connections=1))
        self.loops: list[Loop] = []
        self._strangers: dict[tuple[str, int], float] = {}  # and when we first saw them
        self._to_wake: set[str] = set()
        self._watching: asyncio.Future[None] | None = None
        self.pulse_at = time.monotonic()
        self._told = False  # that the worker's loop stands still
        self._slow = 0  # calls in a row that we gave up on
        self._started = threading.Event()
        self._resting = threading.Event()  # nothing is renewed or healed any more
        self._ended = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._main, name="outlast-keeper", daemon=True)

    def start(self) -> None:
        self._thread.start()
        self._started.wait()

    @property
    def alive(self) -> bool:
        return not self._ended

    def renew_now(self) -> None:
        """Somebody asked for a job to stop: find out which."""
        self._call(self.loops[0].poke)

    def wake(self, queues: set[str]) -> None:
        """Something became ready in these: other workers should hear of it."""
        if self.store.wakes:
            self._to_wake |= queues
            self._call(self.loops[-1].poke)

    def let_go(self) -> None:
        """Rest soon: from now on nothing more is renewed. What proves our life goes on."""
        for loop in self.loops:
            if loop is not self._watch:
                self._call(loop.stop)

    def rest(self) -> None:
        self._resting.wait(self.store.settings.deadline)

    def end(self) -> None:
        """Soon, and with it what proves our life."""
        self.let_go()
        self._call(self._watch.stop)
        self._call(self._stop_watching)

    def join(self) -> None:
        self._thread.join(self.store.settings.deadline)

    def _call(self, action: Callable[[], object]) -> None:
        if self._loop is not None and not self._loop.is_closed():
            try:
                self._loop.call_soon_threadsafe(action)
            except RuntimeError:
                log.debug("the keeper is gone already")

    def _main(self) -> None:
        try:
            asyncio.run(self._keep())
        except Exception as error:
            log.critical("the keeper failed: %s", error, exc_info=True)
        finally:
            self._ended = True
            self._started.set()
            self._resting.set()
            self.worker.post(self.worker.woken, "")  # which makes it look whether we are alive

    async def _keep(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._watch = Loop("watch", self.watch, 0.0, Backoff(first=0.02, factor=2.0), settled=1.0)
        self.loops = self._all_loops()
        for loop in self.loops:
            loop.outage = self.worker.outage
            loop.proves_answer = loop.name in ("renew", "reclaim")
        self._started.set()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._watch.run(), name="outlast-watch")
                await self._go_round()
                self._resting.set()
        finally:
            await self.store.aclose()
            await self.healer.store.aclose()

    def _all_loops(self) -> list[Loop]:
        """The first one renews, the last one wakes others."""
        return [
            Loop("renew", self.renew, self.settings.renew_every, Urgent(self.worker)),
            self._watch,
            Loop("fence", self.fence, self.settings.reclaim_every),
            Loop("overdue", self.overdue, self.settings.reclaim_every),
            Loop("pulse", self.pulse, 1.0),
            *self.healer.loops(),
            Loop("wake", self.wake_others, 60.0),
        ]

    async def _go_round(self) -> None:
        async with asyncio.TaskGroup() as group:
            for loop in self.loops:
                if loop is not self._watch:
                    group.create_task(loop.run(), name=f"outlast-{loop.name}")

    # Hold on

    async def watch(self) -> float:
        """Hear of news, and prove that we live meanwhile; here, where nothing blocks the loop. Its
        first word says that it got through, sooner after a failure than other loops try again."""
        worker, every = self.worker, self.settings.watch_every
        first = True

        def heard(queue: str) -> None:
            nonlocal first
            if first:
                worker.post(worker.resume)
                first = False
            worker.post(worker.woken, queue)

        self._watching = asyncio.ensure_future(self.store.watch(worker.id, heard, every))
        try:
            await self._watching
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
        except OutlastError as error:
            if not isinstance(error, StoreBusy):
                self.healer.doubt_locks()  # others may have lost theirs with ours
            raise
        finally:
            self._watching.cancel()
        return 0.0

    def _stop_watching(self) -> None:
        if self._watching is not None:
            self._watching.cancel()

    async def renew(self) -> float | None:
        """Hold on to everything in hand; learn what is lost, what should stop, what we forgot. What
        somebody else holds at this moment is asked for again soon."""
        fences = self.worker.hands.fences()
        try:
            wish = await self._renew_all(fences)
        except StoreBusy as error:
            if not error.locked:
                raise
            return self._locked_out(fences)
        self._locked = False
        return wish

    async def _renew_all(self, fences: dict[str, int]) -> float | None:
        asked_at = time.monotonic()
        worker = self.worker
        renewed = await self._soon(renew, worker.id, fences, self.settings.lease)
        worker.hands.renewed(renewed.kept, fences, asked_at + self.settings.lease * SAFETY)
        if renewed.draining != worker.draining:
            worker.post(worker.drain, renewed.draining)
        if renewed.lost or renewed.cancelling:
            worker.post(worker.carrier.renewed, renewed, fences)
        if self._watching is None or self._watching.done():
            self._watch.poke()  # the database is there: so is what we watch
        await self._release_strangers(renewed.strangers)
        known, proven = await self._soon(duties.live, worker.id, len(fences), worker.state)
        if not known:
            try:
                await self._soon(duties.arrive, worker.card())
            finally:  # also if the answer was lost
                self._stop_watching()  # taken for dead: the next watch proves our life anew
        elif not proven and self.store.proving:
            await self._soon(duties.prove_life, worker.id)  # we hold the lock, and it says nothing
        return self.settings.renew_every / 4 if renewed.busy else None

    def _locked_out(self, fences: dict[str, int]) -> float:
        """Somebody's lock keeps us from renewing. It keeps everyone from taking our jobs, too, and
        whoever looks for expired leases gives owners the time to renew once when it is gone: so
        what is safe now is safe for that time from now on."""
        lease = self.settings.lease
        self.worker.hands.locked(fences, time.monotonic() + lease * RENEWAL_SHARE * SAFETY)
        if not self._locked:
            self._locked = True
            log.warning("somebody's lock keeps this worker from renewing its leases")
        return lease * RETRY_SHARE

    async def _soon(self, operation: Callable[P, Op[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """With a deadline that leaves time to renew on another connection; longer each time, as a
        database that is merely slow would be slower still if everyone kept giving up on it."""
        patience = max(PATIENCE, self.settings.lease / 3) * 2 ** min(self._slow, 10)
        try:
            async with asyncio.timeout(patience):
                answer = await self.store.arun(operation, *args, **kwargs)
            self._slow = 0
            return answer
        except TimeoutError as error:
            self._slow += 1
            if isinstance(error, OutlastError):
                raise
            raise DeadlineExceeded(seconds=round(patience, 3)) from error

    async def _release_strangers(self, strangers: list[Claim]) -> None:
        """A claim whose answer was lost on its way to us is ours in the database and in nobody's
        hands. Seen for long enough, it is not just on its way: put it back, unspent."""
        now = time.monotonic()
        known, self._strangers = self._strangers, {}
        for claim in strangers:
            since = known.get((claim.id, claim.fence), now)
            if now - since < self.settings.renew_every / 2 or not self.worker.hands.give_up(claim):
                self._strangers[claim.id, claim.fence] = since
                continue
            log.warning("job %s: releasing a claim that never reached us", claim.id,
                        extra=facts(claim))  # fmt: skip
            try:
                await self._soon(finish, [release(claim)])
                self.worker.tell("released", 1)
                self.worker.figures.gave_back_forgotten()
            except Exception as error:
                if not about_a_row(error) and not unforeseen(error):
                    raise
                log.error("job %s cannot be released: %s", claim.id, error, extra=facts(claim))

    async def wake_others(self) -> None:
        """It only makes things faster, so it may fail."""
        queues, self._to_wake = self._to_wake, set()
        if queues:
            with suppress(OutlastError):
                await self.store.arun(wake, self.store.channel, queues)

    # Let go

    async def fence(self) -> float:
        """A worker that cannot renew lets go before others may take over."""
        hands = self.worker.hands
        if hands.unsafe():
            self.worker.post(self.worker.carrier.lose_unsafe)
        wait = hands.safe_until() - time.monotonic()
        return max(SOONEST, min(wait, self.settings.reclaim_every))

    async def overdue(self) -> None:
        """A handler that blocks the event loop keeps its own timeout from being enforced there: it
        loses its job all the same."""
        for held in self.worker.hands.overdue():
            ended = Ended(Outcome.TIMED_OUT, error=timed_out(held.claim))
            finished = await self._soon(finish, [self.worker.carrier.decide(held.claim, ended)])
            held.overdue_at = math.inf
            self.worker.tell("overdue", 1)
            for transition, state in finished.accepted:
                self.worker.figures.accepted(transition, state)
            log.error("job %s: its handler blocks the event loop past its timeout; given up",
                      held.claim.id, extra=facts(held.claim))  # fmt: skip

    async def pulse(self) -> None:
        """A loop that stands still carries nothing out, and its leases are renewed all the same: it
        is said, and after a while the process ends, so that its jobs run elsewhere."""
        worker, limit, now = self.worker, self.settings.stall_limit, time.monotonic()
        if now - self.pulse_at > PAUSED:
            worker.beat_at = now  # the whole process stood still, and not its loop
        self.pulse_at = now
        worker.post(worker.beat)
        still = now - worker.beat_at
        if still < STILL:
            self._told = False
        elif not self._told:
            self._told = True
            log.error("the event loop stands still for %.0f s: a handler blocks it", still)
        if worker.owns_process and 0 < limit < still:
            log.critical("the event loop stood still for %.0f s: this process ends", still)
            tear_down()
            os._exit(1)


class Urgent(Backoff):
    """As patient as any while nothing is in hand; else a lease is at stake, and each try may be the
    one that saves it."""

    def __init__(self, worker: Worker) -> None:
        super().__init__(first=min(1.0, worker.settings.renew_every))
        self._worker = worker

    def failed(self) -> float:
        wait = super().failed()
        return min(wait, self._worker.settings.renew_every / 2) if self._worker.hands else wait
