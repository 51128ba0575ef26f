"""A worker: claims jobs, carries them out, gives back their outcomes, in one loop.

    ┌─▶ take what has ended ─▶ finish + claim, one round trip ─▶ start what was claimed ─┐
    └──────────── nothing to do: wait for an end, a wake-up or the next look ◀───────────┘

While a round trip is under way, outcomes gather; the busier the worker, the larger its batches.

    lookout  where there may be something to claim    carry   starts handlers and stops them
    room     for how many there is a slot             keeper  renews and heals, in its own thread
    returns  outcomes on their way back               news    what cuts a wait short
    strays   what is in hand and in nobody's care
    ending   what becomes of those that still run when it is told to stop
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from json import dumps
from typing import TYPE_CHECKING, Any, Self

from ..model.breaker import Breaker, Circuit
from ..model.errors import (
    DeadlineExceeded,
    OutlastError,
    StoreError,
    StoreUnavailable,
)
from ..model.ids import INSTANCE, new_instance_id
from ..model.job import Claim
from ..model.settings import WorkerSettings
from ..ops import duties
from ..ops.breakers import take_probe
from ..ops.claim import Wanted
from ..ops.leave import leave
from ..version import VERSION
from .batches import Gathering
from .breaker import Breakers, OutageJudge
from .carry import Carrier
from .context import Context
from .ending import let_end
from .figures import Figures
from .held import Hands
from .keeper import Keeper
from .lookout import Lookout
from .loops import WAITING_IS_USELESS, Backoff
from .news import News
from .outage_log import OutageLog
from .returns import Returns
from .room import Room
from .row_faults import is_away
from .strays import Strays
from .threads import Threads

if TYPE_CHECKING:
    from ..client import Outlast

log = logging.getLogger("outlast.worker")

PROOF = 1.0  # seconds to wait for a proof of life before the first claim
PROMOTE_EVERY = 0.1  # seconds; a busy worker makes due jobs ready this often
AHEAD_FOR = 0.25  # seconds that a job may be in hand before there is a slot for it


class Worker:
    def __init__(
        self, app: Outlast, queues: Sequence[str] | None, settings: WorkerSettings
    ) -> None:
        self.app = app
        self.store = app.store
        self.steady = app.store.steady()  # for what is said over and over
        self.settings = settings
        self.queues = None if queues is None else sorted(set(queues))
        # Random at every start, so that no worker answers for a dead one; a supervisor makes it up
        # for its child, so that it knows whom to bury.
        self.id = os.environ.pop(INSTANCE, "") or new_instance_id()
        self.hands = Hands()
        self.figures = Figures()
        self.counts = self.figures.counts
        self.lookout = Lookout(self.queues, settings)
        self.breakers = Breakers(lambda: self.id, self._breaker_opened, self._breaker_closed)
        self.carrier = Carrier(self, self._judge())
        self.returns: Returns = Returns(
            self.store, self.steady, self.hands, self.figures, self.carrier.decide, self.started
        )
        self.room = Room(self)
        self.strays = Strays(self)
        # One thread for each job that may be in flight; they are only started when needed.
        self.threads = Threads(settings.concurrency)
        self.state = "working"
        self.stopping = False
        self.draining = False  # by somebody's wish: it stays, and claims nothing
        self.hurry = False
        self.ears = News()
        self.post = self.ears.post  # from any thread: do something in the worker's loop
        self._broken = False  # it stopped by itself
        self._promote_at = 0.0
        self._backoff = Backoff()
        self.outage = OutageLog()
        self._background: asyncio.Task[None] | None = None
        self._watched = asyncio.Event()  # the keeper hears of news, and proves that we live
        self.owns_process = False  # or a guest in somebody's program
        self.beat_at = time.monotonic()  # the last turn of the event loop that the keeper asked for

    # Start and stop

    def run(self) -> None:
        """Work until stopped; SIGTERM and SIGINT drain, a second one leaves at once."""
        from .signals import run_with_signals

        self.owns_process = True
        run_with_signals(self)

    async def arun(self) -> None:
        """Work until `stop()` is called, then drain."""
        self.ears.open()
        self.beat()
        try:
            await self._work()
        finally:
            if self.steady is not self.store:
                await self.steady.aclose()

    async def _work(self) -> None:
        await self._arrive()
        self.keeper = self._new_keeper()
        self.keeper.start()
        try:
            await self._watched_over()
            while not self.stopping:
                await self.step()
            await self._drain()
            if self._broken:
                raise OutlastError("the worker has stopped itself, and must be started again")
        except asyncio.CancelledError:
            self.stop()
            self.hurry = True
            await self._drain()
            raise
        finally:
            await self._leave()

    def _new_keeper(self) -> Keeper:
        return Keeper(self)

    async def _leave(self) -> None:
        """Our card goes before our proof of life does: else, with a slow database, others would
        bury one that only leaves."""
        self.keeper.let_go()  # first, and without waiting: we may be cancelled once more
        try:
            await asyncio.to_thread(self.keeper.rest)  # a renewal would put the card back
            with suppress(StoreError):  # others will find out
                await self.steady.arun(leave, self.id)
        finally:
            self.keeper.end()
            self.threads.shutdown(wait=False)
            await asyncio.to_thread(self.keeper.join)

    def stop(self) -> None:
        """Stop claiming, let running jobs end for the grace time, release the rest. Called twice,
        it does not wait. Safe from any thread and from signal handlers."""
        self.hurry = self.hurry or self.stopping
        self.stopping = True
        self.state = "draining"
        self.post(self.ears.resume)
        self.post(self.ears.hear)

    def drain(self, wanted: bool) -> None:
        """Claim nothing more, until that is taken back; what runs goes on, and so does healing."""
        self.draining = wanted
        if not self.stopping:
            self.state = "draining" if wanted else "working"
        log.warning("told to claim %s", "no more" if wanted else "again")
        self.ears.hear()

    async def __aenter__(self) -> Self:
        self._background = asyncio.create_task(self.arun(), name="outlast-worker")
        self._background.add_done_callback(_report)
        return self

    async def __aexit__(self, *_: object) -> None:
        if not self.stopping:  # to stop twice would be to hurry
            self.stop()
        if self._background is not None:
            await self._background

    async def _arrive(self) -> None:
        """Say that we are here; a database that is not there yet is waited for."""
        backoff = Backoff()
        while not self.stopping:
            try:
                await self.steady.arun(duties.arrive, self.card())
                self.outage.answered()
                return
            except WAITING_IS_USELESS:
                raise
            except StoreError as error:
                wait = backoff.failed()
                if not self.outage.covers(error, wait):
                    log.warning("%s; next try in %.1f s", error, wait)
                await self.ears.hold(wait, self.stopping)

    async def _watched_over(self) -> None:
        """What is claimed before there is a proof of life waits for a lease if we die: so there
        should be one first, if it can be had soon."""
        with suppress(TimeoutError):
            async with asyncio.timeout(PROOF):
                await self._watched.wait()

    def card(self) -> dict[str, Any]:
        """Who we are, for others to see."""
        return {
            "id": self.id,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "queues": None if self.queues is None else dumps(self.queues),
            "tasks": dumps(self.app.registry.names()),
            "concurrency": self.settings.concurrency,
            "version": VERSION,
            "lease": self.settings.lease,
        }

    def beat(self) -> None:
        """Once a second, while the loop goes round."""
        self.beat_at = time.monotonic()
        self.figures.tally()

    # Circuit breakers

    def _judge(self) -> OutageJudge:
        return self.breakers

    def _breaker_opened(self, circuit: Circuit) -> None:
        self.carrier.hold_back(circuit)
        self.ears.hear()

    def _breaker_closed(self, circuit: Circuit) -> None:
        self.lookout.reopen(circuit.queue)
        self.ears.hear()

    def _probes(self, circuit: Circuit) -> bool:
        known = self.app.registry.get(circuit.task) is not None
        return known and self.lookout.serves(circuit.queue)

    async def _probe(self, room: int) -> None:
        """Try one job of each task whose breaker is due, if no other worker does."""
        for opened in self.breakers.due(self._probes, room):
            definition = self.app.registry[opened.circuit.task]
            breaker = definition.breaker or Breaker()
            wait = breaker.wait(opened.probes + 1, random.random())
            asked_at, last_life = time.monotonic(), not self.hands.has_last_life()
            try:
                claims = await self.steady.arun(
                    take_probe, opened, self.id, self.settings.lease, wait, last_life
                )
            except Exception as error:
                if is_away(error):
                    raise
                self._failed(f"probing {opened.circuit} failed", error)
                continue
            if claims:
                self.breakers.probed(opened, claims[0])
                self._take(claims, asked_at)

    # The loop

    async def step(self) -> None:
        """One turn, whatever happens in it."""
        try:
            if self.strays.due():
                self.strays.look()
            await self.turn()
            self._backoff.succeeded()
        except Exception as error:
            wait = self._backoff.failed()
            known = self.outage.covers(error, wait)
            self._failed(
                f"next try in {wait:.1f} s", error, logging.DEBUG if known else logging.WARNING
            )
            await self.ears.hold(wait, self.stopping)
        if not self.keeper.alive and not self.hurry:
            log.critical("the keeper's thread died: leaving, so that no lease is held in vain")
            self.stop()
            self._broken = self.hurry = True  # without renewals there is no time to drain

    def _failed(self, what: str, error: Exception, level: int = logging.WARNING) -> None:
        self.counts["turn_failed"] += 1
        bug = not isinstance(error, OutlastError)  # its traceback tells more than its message
        log.log(level, "%s; %s", error, what, exc_info=bug)

    async def turn(self) -> None:
        """Give back what has ended, take what there is room for, or wait."""
        self._start()
        self.carrier.put_back(after=AHEAD_FOR)
        if self.breakers.pending and await self.breakers.write(self.steady):
            self.keeper.wake({""})
        room = 0 if self.stopping or self.draining else self.room.for_claims()
        if (gathering := self.carrier.batches.hungry(full=room <= 0)) is not None:
            await self._fill(gathering)
            return
        if room > 0 and self.lookout.wait() == 0:
            room = await self._look_around(room)
        self.lookout.held = self.breakers.held
        queues = self.lookout.next() if room > 0 else ()
        if not queues:
            await self._give_back_or_rest(room)
            return
        await self._claim(self._wanted(*queues, room=room))

    async def _look_around(self, room: int) -> int:
        """Look, probe what is due; the room that is left."""
        asked_at = time.monotonic()
        seen = await self.lookout.look(self.steady)
        self.breakers.seen(seen.breakers, asked_at)
        if not self.breakers.open:
            return room
        await self._probe(room)
        await self.breakers.retire(self.steady)
        return self.room.for_claims()

    async def _fill(self, gathering: Gathering) -> None:
        """Ask for more of a task whose next batch is being gathered."""
        try:
            closed = self.stopping or self.draining
            held = gathering.definition.name in self.breakers.held.get(gathering.queue, ())
            if not closed and not held and not self.room.short_of_memory():
                wanted = self._wanted(gathering.queue, room=gathering.room)
                await self._claim(replace(wanted, task=gathering.definition.name, place=None))
        finally:
            self.carrier.batches.filled(gathering)

    async def _claim(self, wanted: Wanted) -> None:
        """Give back, take, and start what was taken; unless the queue is in trouble."""
        try:
            claims, asked_at = await self.returns.exchange(wanted)
        except Exception as error:
            if isinstance(error, StoreUnavailable | DeadlineExceeded):
                self.lookout.not_asked(wanted)
                raise
            self.lookout.failed(wanted)
            others = f" and {len(wanted.others)} others" if wanted.others else ""
            self._failed(f"claiming from {wanted.queue!r}{others} failed", error)
            return
        self.outage.answered()
        took = time.monotonic() - asked_at
        self._take(claims, asked_at)
        if wanted.task is None:
            self.lookout.claimed(wanted, claims, took)
            if not claims and wanted.queue in self.breakers.held:
                self.lookout.rest_held(wanted.queues, took)
            all_there_was = len(claims) < wanted.limit and wanted.place is None
            for queue in wanted.queues:
                self.carrier.batches.claimed(queue, all_there_was)

    def _take(self, claims: Sequence[Claim], asked_at: float) -> None:
        self.counts["claimed"] += len(claims)
        self.figures.claimed(claims)
        self.figures.tally()
        self.carrier.take(claims, asked_at)
        self._start()

    def _start(self) -> None:
        if self.carrier.ahead:
            self.carrier.start(self.room.slots() + self.carrier.waiting())

    async def _give_back_or_rest(self, room: int) -> None:
        if self.returns:
            await self.returns.exchange()
            return
        wait = self.lookout.pause() if room > 0 else 1.0
        if self.carrier.ahead:
            wait = min(wait, AHEAD_FOR)
        await self.ears.pause(min(wait, self.settings.renew_every) if self.hands else wait)

    def _wanted(self, queue: str, *others: str, room: int) -> Wanted:
        now = time.monotonic()
        due = now >= self._promote_at
        if due:
            self._promote_at = now + PROMOTE_EVERY
        unknown, known = self.carrier.unknown(), self.carrier.known()
        if held := self.breakers.held.get(queue):  # the same in all of them
            unknown = {*unknown, *held}
            known = None if known is None else [task for task in known if task not in held]
        return Wanted(
            worker=self.id,
            queue=queue,
            others=others,
            limit=room,
            lease=self.settings.lease,
            unknown=unknown,
            known=known,
            promote=due,
            last_life=not self.hands.has_last_life(),
            place=None if others else self.lookout.place(queue),
        )

    # News, from any thread

    def resume(self) -> None:
        """The database answers again: whoever waits out a failure goes on."""
        self.ears.resume()

    def woken(self, queue: str) -> None:
        """Something changed: in this queue, or ("") somewhere. A word that starts with ! is for
        the keeper."""
        self._watched.set()
        self.counts["woken"] += 1
        if queue.startswith("!"):
            self.keeper.renew_now()
        else:
            self.lookout.hear(queue)
            self.carrier.batches.hear(queue)
            self.ears.hear()

    def started(self, queues: set[str]) -> None:
        """What we handed in let others start: we look there, and so should everyone."""
        for queue in queues:
            self.lookout.hear(queue)
        self.ears.hear()
        self.keeper.wake(queues)

    def news(self) -> None:
        """Something ended: go round."""
        self.ears.hear()

    def context(self, claim: Claim) -> Context:
        """What a handler is given."""
        return Context(claim, self.say, self.app.store, self.returns.said_by, self.app.blobs)

    def say(self, claim: Claim, kind: str, data: str, n: int | None = None) -> None:
        """From a handler, in any thread: an event."""
        self.returns.say(claim, kind, data, n)
        self.post(self.ears.hear)

    def tell(self, what: str, number: int) -> None:
        if number:
            self.counts[what] += number

    async def _drain(self) -> None:
        """Let running jobs end within the grace time; release the rest at once, unspent."""
        await let_end(self)


def _report(background: asyncio.Task[None]) -> None:
    """A worker beside a web app has nobody who waits for it: its failure must not go unseen."""
    if not background.cancelled() and (error := background.exception()):
        log.critical("the worker ended: %s", error, exc_info=error)
