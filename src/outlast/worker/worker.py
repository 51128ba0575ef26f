"""A worker: claims jobs, carries them out, gives back their outcomes, in one loop.

    ┌─▶ take what has ended ─▶ finish + claim, one round trip ─▶ start what was claimed ─┐
    └──────────── nothing to do: wait for an end, a wake-up or the next look ◀───────────┘

While a round trip is under way, outcomes gather; the busier the worker, the larger its batches.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import socket
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from json import dumps
from typing import TYPE_CHECKING, Any, Self

from ..model.errors import OutlastError, StoreError
from ..model.ids import new_instance_id
from ..model.job import Claim
from ..model.lifecycle import Outcome, State
from ..model.outcome import Ended, Transition, decide, release
from ..model.retry import Retry
from ..model.settings import WorkerSettings
from ..model.text import describe
from ..ops import duties
from ..ops.claim import Wanted, look, promote, turns
from ..ops.finish import Finished, finish, turn
from ..ops.leave import leave
from ..ops.renew import Renewed
from ..version import VERSION
from .context import Context
from .execute import Execution, begin
from .held import Hands, Held
from .keeper import Keeper
from .loops import Backoff, Loop
from .memory import free_megabytes

if TYPE_CHECKING:
    from ..client import Outlast

log = logging.getLogger("outlast.worker")

SAFETY = 0.9  # the share of a lease after which an unrenewed job is let go
PROMOTE_EVERY = 0.1  # seconds; a busy worker makes due jobs ready this often


class Worker:
    def __init__(
        self, app: Outlast, queues: Sequence[str] | None, settings: WorkerSettings
    ) -> None:
        self.app = app
        self.store = app.store
        self.settings = settings
        self.queues = None if queues is None else sorted(set(queues))
        self.id = new_instance_id()
        self.hands = Hands()
        self.counts: Counter[str] = Counter()
        self.state = "working"
        self.stopping = False
        self._hurry = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended: list[Held] = []
        self._events: deque[dict[str, Any]] = deque()
        self._busy: set[str] = set()  # queues that are believed to hold something for us
        self._unknown: set[str] = set()  # tasks that we have met and cannot run
        self._last: str | None = None  # the queue that had its turn
        self._look_at = 0.0
        self._promote_at = 0.0
        self._stuck = 0  # abandoned handlers that still hold a thread
        self._idle = settings.poll_min
        self._backoff = Backoff()
        self._background: asyncio.Task[None] | None = None

    # Start and stop

    def run(self) -> None:
        """Work until stopped; SIGTERM and SIGINT drain, a second one leaves at once."""
        from .signals import run_with_signals

        run_with_signals(self)

    async def arun(self) -> None:
        """Work until `stop()` is called, then drain."""
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._stopped = asyncio.Event()
        if self.stopping:
            self._stopped.set()
        # One thread for each job that may be in flight; they are only started when needed.
        self._threads = ThreadPoolExecutor(self.settings.concurrency, "outlast-job")
        await self._arrive()
        self.keeper = Keeper(self)
        self.keeper.start()
        watch = Loop("watch", self._watch, 0.0)
        watching = asyncio.create_task(watch.run(), name="outlast-watch")
        try:
            while not self.stopping:
                await self._step()
            await self._drain()
        except asyncio.CancelledError:
            self.stop()
            self._hurry = True
            await self._drain()
            raise
        finally:
            watch.stop()
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            await asyncio.to_thread(self.keeper.stop)
            with suppress(StoreError):  # others will find out
                await self.store.arun(leave, self.id)
            self._threads.shutdown(wait=False, cancel_futures=True)

    def stop(self) -> None:
        """Stop claiming, let running jobs end for the grace time, release the rest. Called twice,
        it does not wait. Safe from any thread and from signal handlers."""
        self._hurry = self._hurry or self.stopping
        self.stopping = True
        self.state = "draining"
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stopped.set)
            self._loop.call_soon_threadsafe(self._news.set)

    async def __aenter__(self) -> Self:
        self._background = asyncio.create_task(self.arun(), name="outlast-worker")
        return self

    async def __aexit__(self, *_: object) -> None:
        self.stop()
        if self._background is not None:
            await self._background

    async def _arrive(self) -> None:
        """Say that we are here; a database that is not there yet is waited for."""
        backoff = Backoff()
        while not self.stopping:
            try:
                await self.store.arun(duties.arrive, self.card())
                return
            except StoreError as error:
                wait = backoff.failed()
                log.warning("%s; next try in %.1f s", error, wait)
                await self._hold(wait)

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

    async def _watch(self) -> None:
        await self.store.watch(self.woken, self.settings.watch_every)

    # The loop

    async def _step(self) -> None:
        """One turn, whatever happens in it."""
        try:
            await self.turn()
            self._backoff.succeeded()
        except Exception as error:
            self.counts["turn_failed"] += 1
            wait = self._backoff.failed()
            known = isinstance(error, OutlastError)
            log.warning("%s; next try in %.1f s", error, wait, exc_info=not known)
            await self._hold(wait)
        if not self.keeper.alive and not self.stopping:
            log.critical("the keeper's thread died: leaving, so that no lease is held in vain")
            self.stop()

    async def turn(self) -> None:
        """Give back what has ended, take what there is room for, or wait."""
        room = 0 if self.stopping else self._room()
        queue = self._next_queue() if room > 0 else None
        if queue is None and not self._ended and not self._events:
            await self._rest(room)
            return
        ended, self._ended = self._ended, []
        claims: list[Claim] = []
        asked_at = time.monotonic()
        try:
            claims = await self._exchange(ended, queue, room)
        except BaseException:
            # What was not taken back is still ours to give.
            self._ended = [held for held in ended if self.hands.holds(held)] + self._ended
            raise
        for claim in claims:
            self._start(claim, asked_at)

    async def _exchange(self, ended: list[Held], queue: str | None, room: int) -> list[Claim]:
        transitions = [held.transition for held in ended if held.transition is not None]
        plain = [t for t in transitions if t.plain]
        other = [t for t in transitions if not t.plain]
        events = [self._events.popleft() for _ in range(len(self._events))]
        if other or events:
            self._settled(await self._finish(other, events))
        if queue is None:
            if plain:
                self._settled(await self._finish(plain, []))
            return []
        return await self._claim(queue, room, plain)

    async def _claim(self, queue: str, room: int, plain: list[Transition]) -> list[Claim]:
        # Forget the queue before we ask, so that news of it that come meanwhile are not lost.
        self._busy.discard(queue)
        self._last = queue
        finished, claims = await self.store.arun(turn, plain, self._wanted(queue, room))
        self._settled(finished)
        self.counts["claimed"] += len(claims)
        if len(claims) == room:
            self._busy.add(queue)
        if claims:
            self._idle = self.settings.poll_min
            self._look_at = min(self._look_at, time.monotonic() + self._idle)
        return claims

    def _wanted(self, queue: str, room: int) -> Wanted:
        now = time.monotonic()
        due = now >= self._promote_at
        if due:
            self._promote_at = now + PROMOTE_EVERY
        return Wanted(self.id, queue, room, self.settings.lease, self._unknown, promote=due)

    async def _finish(
        self, transitions: list[Transition], events: list[dict[str, Any]]
    ) -> Finished:
        """Hand outcomes in; a batch that the database refuses is handed in one by one, so that one
        that cannot be stored keeps no other waiting."""
        numbered = [{**event, "n": n} for n, event in enumerate(events)]
        try:
            return await self.store.arun(finish, transitions, numbered)
        except OutlastError as error:
            if _about_the_store(error):
                self._events.extendleft(reversed(events))
                raise
        together = Finished()
        for transition in transitions:
            mine = [event for event in numbered if event["job"] == transition.claim.id]
            finished = await self._finish_alone(transition, mine)
            together.accepted += finished.accepted
            together.lost += finished.lost
        return together

    async def _finish_alone(self, transition: Transition, events: list[dict[str, Any]]) -> Finished:
        try:
            return await self.store.arun(finish, [transition], events)
        except OutlastError as error:
            if _about_the_store(error):
                raise
            ended = Ended(Outcome.FAILED, error=describe(error))
            instead = decide(transition.claim, ended, Retry(), random.random())
            return await self.store.arun(finish, [instead])

    def _settled(self, finished: Finished) -> None:
        for transition, state in finished.accepted:
            self.hands.put_down(transition.claim)
            self.counts[state] += 1
        for transition in finished.lost:
            self.hands.put_down(transition.claim)
            self.counts["refused"] += 1
            log.warning(
                "job %s: attempt %d lost its claim; its outcome (%s) was refused",
                transition.claim.id, transition.claim.attempt, transition.outcome,
                extra=_facts(transition.claim),
            )  # fmt: skip

    # Where to look, and when

    def woken(self, queue: str) -> None:
        """Something changed: in this queue, or ("") somewhere. A word that starts with ! is for
        the keeper."""
        if queue.startswith("!"):
            self.keeper.renew_now()
        elif queue == "":
            self._look_at = 0.0
        elif self._serves(queue):
            self._busy.add(queue)
        self._idle = self.settings.poll_min
        self._news.set()

    def _serves(self, queue: str) -> bool:
        return self.queues is None or queue in self.queues

    def _next_queue(self) -> str | None:
        return turns(self._busy, self._last)[0] if self._busy else None

    def _room(self) -> int:
        floor = self.settings.memory_floor
        if floor and free_megabytes() < floor:
            self.counts["deferred_for_memory"] += 1
            return 0
        return self.settings.concurrency - len(self.hands) - self._stuck

    async def _rest(self, room: int) -> None:
        """Nothing to hand in and nothing known to claim: look if it is time, else wait."""
        now = time.monotonic()
        if room > 0 and now >= self._look_at and not self.stopping:
            self._idle = min(self.settings.poll_max, self._idle * 2)
            self._look_at = now + self._idle * random.uniform(0.75, 1.25)
            self._news.clear()
            seen = await self.store.arun(look)
            if seen.due:
                await self.store.arun(promote)
                self._look_at = 0.0
            self._busy |= {queue for queue in seen.queues if self._serves(queue)}
            if self._busy:
                return
        wait = self._look_at - time.monotonic() if room > 0 else 1.0
        await self._pause(max(0.0, wait))

    async def _hold(self, seconds: float) -> None:
        """Wait out a failure: no news but the order to stop cuts it short."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopped.wait()

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._news.wait()
        self._news.clear()

    # Carrying out

    def _start(self, claim: Claim, asked_at: float) -> None:
        definition = self.app.registry.get(claim.task)
        context = Context(claim, lambda kind, data: self._say(claim, kind, data))
        safe_until = asked_at + self.settings.lease * SAFETY
        if definition is None:
            self._put_back_unknown(claim, safe_until)
            return
        if older := self.hands.get(claim.id):
            self.lose([older])  # we lost it, and were the ones to claim it again
        execution = begin(definition, claim, context)
        held = Held(claim, safe_until, execution)
        self.hands.take(held)
        held.task = asyncio.create_task(self._carry_out(held, execution))
        if claim.timeout is not None:
            self._after(held, claim.timeout, lambda: self._interrupt(held, Outcome.TIMED_OUT))

    async def _carry_out(self, held: Held, execution: Execution) -> None:
        ended = await execution.run(self._threads)
        if held.abandoned:
            self._stuck -= 1  # the thread that it held is free at last
            self._news.set()
        else:
            self._end(held, execution.definition.retry, ended)

    def _end(self, held: Held, retry: Retry, ended: Ended) -> None:
        claim = held.claim
        held.transition = decide(
            claim, ended, Retry.from_json(claim.retry) if claim.retry else retry, random.random()
        )
        held.drop_timers()
        self._ended.append(held)
        self._news.set()
        if ended.error is not None:
            self._log_end(claim, ended, held.transition)

    def _log_end(self, claim: Claim, ended: Ended, transition: Transition) -> None:
        error = ended.error or {}
        level = logging.ERROR if transition.to is State.DEAD else logging.WARNING
        log.log(
            level, "job %s (%s) attempt %d %s, now %s: %s: %s", claim.id, claim.task,
            claim.attempt, ended.outcome, transition.to, error.get("type"), error.get("message"),
            extra=_facts(claim),
        )  # fmt: skip

    def _interrupt(self, held: Held, why: Outcome) -> None:
        """Ask a handler to stop; one that does not within the grace time is abandoned."""
        execution = held.execution
        if execution is None or held.ended or execution.stopped is not None:
            return
        execution.stopped = why
        execution.interrupt(held.task)
        self._after(held, self.settings.cancel_grace, lambda: self._abandon(held, execution))

    def _abandon(self, held: Held, execution: Execution) -> None:
        """Its outcome no longer waits for the handler, which may still hold a thread."""
        if held.ended:
            return
        log.error("job %s: its handler does not stop; abandoned", held.claim.id)
        self.counts["abandoned"] += 1
        self._leave_alone(held)
        self._end(held, execution.definition.retry, execution.interrupted())

    def _leave_alone(self, held: Held) -> None:
        if not held.abandoned:
            held.abandoned = True
            self._stuck += 1

    def _after(self, held: Held, seconds: float, action: Callable[[], None]) -> None:
        held.timers.append(asyncio.get_running_loop().call_later(seconds, action))

    def _put_back_unknown(self, claim: Claim, safe_until: float) -> None:
        """Never destroyed, never spent: others may know it. We do not ask for such jobs again."""
        if claim.task not in self._unknown:
            log.error(
                "the task %r is unknown to this worker: its jobs are left for others", claim.task
            )
        self._unknown.add(claim.task)
        self.counts["unhandled"] += 1
        held = Held(claim, safe_until, transition=release(claim))
        self.hands.take(held)
        self._ended.append(held)
        self._news.set()

    def _say(self, claim: Claim, kind: str, data: str) -> None:
        """From any thread: keep an event until the next turn hands it in."""
        if len(self._events) >= 10_000:
            self.counts["events_dropped"] += 1
            return
        self._events.append({"job": claim.id, "fence": claim.fence, "kind": kind, "data": data})
        if self._loop is not None:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._news.set)

    # What the keeper tells us

    def post(self, action: Callable[..., None], *args: Any) -> None:
        """From the keeper's thread: do something in ours."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is gone: so is what this was about
                self._loop.call_soon_threadsafe(action, *args)

    def tell(self, what: str, number: int) -> None:
        if number:
            self.counts[what] += number

    def renewed(self, renewed: Renewed, held: dict[str, int], asked_at: float) -> None:
        for id, fence in held.items():
            mine = self.hands.get(id, fence)
            if mine is None:
                continue
            if id in renewed.kept:
                mine.safe_until = asked_at + self.settings.lease * SAFETY
            elif not mine.ended:
                self.lose([mine])
            if id in renewed.cancelling:
                self._interrupt(mine, Outcome.CANCELLED)

    def lose_overdue(self) -> None:
        """We could not renew in time: let go before others may take over."""
        self.lose(self.hands.overdue())

    def lose(self, held: Sequence[Held]) -> None:
        """Somebody else may have these: stop them, and keep nothing of what they did."""
        for one in held:
            if one.ended or one.execution is None:
                continue  # an outcome on its way is judged by the fence
            log.warning("job %s: claim lost, stopping", one.claim.id, extra=_facts(one.claim))
            self.counts["lost"] += 1
            self._leave_alone(one)
            self.hands.drop(one)
            one.execution.context.lose()
            one.execution.stopped = Outcome.RELEASED
            one.execution.interrupt(one.task)

    # The end

    async def _drain(self) -> None:
        """Let running jobs end within the grace time; release the rest at once, unspent."""
        deadline = time.monotonic() + self.settings.grace
        while self.hands.running() and time.monotonic() < deadline and not self._hurry:
            await self._step_or_pause(deadline)
        for held in self.hands.running():
            self._interrupt(held, Outcome.RELEASED)
        patience = time.monotonic() + (0.0 if self._hurry else min(1.0, self.settings.grace))
        while self.hands.running() and time.monotonic() < patience and not self._hurry:
            await self._step_or_pause(patience)
        for held in self.hands.running():
            if held.execution is not None:
                self._abandon(held, held.execution)
        await self._hand_in()

    async def _step_or_pause(self, deadline: float) -> None:
        if self._ended or self._events:
            await self._step()
        else:
            await self._pause(min(0.5, max(0.0, deadline - time.monotonic())))

    async def _hand_in(self) -> None:
        """The last outcomes; what cannot be handed in now is reclaimed by others."""
        deadline = time.monotonic() + self.store.settings.connect_timeout
        while (self._ended or self._events) and time.monotonic() < deadline:
            try:
                await self.turn()
            except StoreError as error:
                log.warning("%s; %d outcomes wait", error, len(self._ended))
                await asyncio.sleep(0.1)


def _about_the_store(error: OutlastError) -> bool:
    """Whether an error says something about the database, not about the rows it was given."""
    return isinstance(error, StoreError) and type(error) is not StoreError


def _facts(claim: Claim) -> dict[str, Any]:
    """What every log line about a job carries."""
    return {
        "job": claim.id,
        "attempt": claim.attempt,
        "fence": claim.fence,
        "tenant": claim.tenant,
        "trace": claim.trace,
    }
