"""Why is it not running? Facts from the database, and a pure function that puts them in words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..model.breaker import Circuit
from ..model.job import Job
from ..model.lifecycle import QUEUED, State
from ..model.outcome import reason
from ..model.unreadable import UNREADABLE
from ..model.words import count, span
from . import report
from .breaker_report import BreakerState, breaker_of, breakers
from .flow_report import prerequisites_in, root_cause
from .flows import BROKEN
from .reach import EVERYTHING, Reach
from .reclaim import signs_of_loss
from .report import Worker
from .statement import Op

LIVE = {*QUEUED, State.RUNNING}
NAMED = 3  # jobs that are named of those that one waits for
ENDLESS = 3600.0  # seconds: no worker takes a lease like this without being listed


@dataclass(frozen=True, slots=True)
class Facts:
    """All that bears on one job, at one moment by the database's clock."""

    job: Job
    now: float
    paused: bool  # its queue
    workers: list[Worker]
    ahead: int
    lock_free: bool = False  # nobody holds the liveness lock of its worker
    before: int = 0  # jobs that it comes after
    open: Sequence[Job] = ()  # the first few of these that have not ended
    cause: Job | None = None  # the one that it died of
    reach: Reach = EVERYTHING  # of whom it is told: other jobs than these are not named
    breaker: BreakerState | None = None  # of its task in its queue, if it is open

    @property
    def owner(self) -> Worker | None:
        return next((worker for worker in self.workers if worker.id == self.job.worker), None)

    @property
    def alive(self) -> list[Worker]:
        """Those that live, as far as this job's own worker is not known to be dead."""
        gone = self.job.worker if self.lock_free else None
        return [worker for worker in self.workers if worker.alive and worker.id != gone]

    def sees(self, other: Job) -> bool:
        """Whether whoever asks may know of another job."""
        return self.reach.has(other.tenant, other.queue)


def explain(
    id: str,
    confirm_dead: Callable[[Sequence[str]], list[str]],
    reach: Reach = EVERYTHING,
) -> Op[str]:
    """Why a job stands where it stands. `confirm_dead` tells which of the workers with a sign of
    death are dead, where that is no matter of the database."""
    job = yield from report.job(id, reach)
    now = yield from report.clock()
    paused = yield from report.paused()
    workers = yield from report.cards()
    ahead = (yield from report.ahead(id, reach)) if job.state is State.READY else 0
    free = False
    if job.state is State.RUNNING:
        signs = yield from signs_of_loss()
        free = bool(confirm_dead([worker for worker in signs.workers if worker == job.worker]))
    before, still_open = 0, list[Job]()
    if job.state is State.WAITING:
        before, still_open = yield from prerequisites_in(id, LIVE, NAMED)
    cause = (yield from root_cause(job)) if job.state in BROKEN else None
    stopped = paused.get(job.queue, False)
    breaker = breaker_of((yield from breakers()), Circuit(job.queue, job.task))
    facts = Facts(
        job, now, stopped, workers, ahead, free, before, still_open, cause, reach, breaker
    )
    return in_words(facts)


def in_words(facts: Facts) -> str:
    told, wrong = _standing(facts), facts.job.unreadable
    return told if wrong is None else f"Its row is partly unreadable: {wrong}. {told}"


def _standing(facts: Facts) -> str:
    job = facts.job
    if job.state is UNREADABLE:
        return "No worker claims it: repair the row, or delete it."
    match job.state:
        case State.READY:
            return _ready(facts)
        case State.SCHEDULED:
            return _scheduled(facts)
        case State.RUNNING:
            return _running(facts)
        case State.WAITING:
            return _waiting(facts)
        case State.SUCCEEDED:
            return f"It succeeded on attempt {job.attempt}."
        case State.CANCELLED | State.DEAD if facts.cause is not None:
            return _doomed(facts.cause, facts)
        case State.CANCELLED:
            return f"It was cancelled: {reason(job.error)}."
        case State.DEAD:
            return (
                f"It is dead after {count(job.failures, 'failure')} (of {job.max_attempts}) and"
                f" {count(job.crashes, 'lost worker')} (of {job.max_crashes}):"
                f" {reason(job.error)}. It is kept until someone acts; `outlast retry {job.id}`"
                " gives it a new life."
            )


def _ready(facts: Facts) -> str:
    job = facts.job
    if expired := _expired(facts):
        return expired
    if facts.paused:
        return f"Its queue is paused: `outlast resume {job.queue}` lets it run."
    if facts.breaker is not None:
        return _held_back(facts.breaker, facts)
    alive = facts.alive
    if not alive:
        return "No worker is alive: start one with `outlast worker APP`."
    serving = [worker for worker in alive if worker.serves(job.queue)]
    if not serving:
        return f"No live worker serves the queue {job.queue!r}."
    open_ones = [worker for worker in serving if worker.state != "draining"]
    if not open_ones:
        return f"All live workers that serve {job.queue!r} are draining: they claim nothing more."
    able = [worker for worker in open_ones if job.task in worker.tasks]
    if not able:
        return (
            f"No live worker that serves {job.queue!r} knows the task {job.task!r}: deploy the code"
            " that defines it. Meanwhile the job is kept, unspent."
        )
    many = "at least " if facts.ahead >= report.MOST_AHEAD else ""
    number = f"{many}{count(facts.ahead, 'job')}" if facts.ahead else "no job"
    whose = " of yours" if facts.reach.tenant is not None else ""
    place = f"{number}{whose} of its queue"
    busy = all(worker.running >= worker.concurrency for worker in able)
    why = "all of them are busy" if busy else "it will be claimed at their next look"
    suspect = (
        f" It has cost {count(job.crashes, 'worker')}, and one more would end it: it is run beside"
        " no other of that kind."
        if job.crashes and job.crashes + 1 >= job.max_crashes
        else ""
    )
    able_ones = count(len(able), "worker")
    return f"It is ready, with {place} before it. {able_ones} can run it; {why}.{suspect}"


def _held_back(breaker: BreakerState, facts: Facts) -> str:
    why = breaker.reason if facts.reach.tenant is None else breaker.kind
    close = (
        f" `outlast close-breaker {breaker.queue} {breaker.task}` lets its jobs run at once."
        if facts.reach.tenant is None
        else ""
    )
    return (
        f"The circuit breaker of its task in its queue has been open for {span(breaker.open_for)}:"
        f" {why}. It is held back, unspent, until a probe succeeds; {breaker.probe_in_words}."
        f"{_who(facts)}{_no_prober(facts)}{close}"
    )


def _no_prober(facts: Facts) -> str:
    """A probe that is due waits for a worker that can make it."""
    job = facts.job
    able = [one for one in facts.alive if one.serves(job.queue) and job.task in one.tasks]
    if able or not facts.alive:
        return ""
    return f" No live worker serves the queue {job.queue!r} and knows the task {job.task!r}."


def _waiting(facts: Facts) -> str:
    job = facts.job
    if expired := _expired(facts):
        return expired
    named = [f"{one.task} {one.id} ({one.state})" for one in facts.open if facts.sees(one)]
    more = job.waits_for - len(named)
    rest = f" and {more} more" if more > 0 else ""
    which = f": {', '.join(named)}{rest}." if named else "."
    if not facts.open:
        which += f" None of them is still to end, which cannot be: the audit mends it.{_who(facts)}"
    elif not named:
        which = "; of others' jobs you are not told."
    return f"It waits for {job.waits_for} of the {count(facts.before, 'job')} it comes after{which}"


def _doomed(cause: Job, facts: Facts) -> str:
    state = facts.job.state
    if not facts.sees(cause):
        return f"It never ran and is {state}, because a job of others had to succeed before it."
    return (
        f"It never ran and is {state}, because {cause.task} {cause.id}, which had to succeed before"
        f" it, is {cause.state}: {reason(cause.error)}. `outlast retry {cause.id}` gives that one a"
        " new life, and this one with it."
    )


def _expired(facts: Facts) -> str:
    expires_at = facts.job.expires_at
    if expires_at is None or expires_at.timestamp() > facts.now:
        return ""
    since = span(facts.now - expires_at.timestamp())
    if facts.alive:
        return f"It expired {since} ago, and will be cancelled in a moment."
    return f"It expired {since} ago and will not be run; the next worker that starts cancels it."


def _scheduled(facts: Facts) -> str:
    job = facts.job
    if expired := _expired(facts):
        return expired
    wait = job.run_at.timestamp() - facts.now
    when = f"in {span(wait)}" if wait > 0 else "now: the next worker that looks takes it"
    if wait <= 0 and not facts.alive:
        when = f"(due {span(-wait)} ago) when a worker is alive: start one"
    held = "" if facts.breaker is None else f" {_held_back(facts.breaker, facts)}"
    if job.failures or job.attempt:
        return (
            f"It tries again {when} (attempt {job.attempt + 1}, {count(job.failures, 'failure')}"
            f" of {job.max_attempts}). Last error: {reason(job.error)}.{held}"
        )
    return f"It is scheduled to run {when}.{held}"


def _running(facts: Facts) -> str:
    job, owner = facts.job, facts.owner
    who = f"worker {job.worker}" + (f" (pid {owner.pid} on {owner.host})" if owner else "")
    since = facts.now - job.started_at.timestamp() if job.started_at else 0.0
    said = [f"It is running on {who}, attempt {job.attempt}, for {span(since)}."]
    said += [fact for fact in (_liveness(facts), _lease(facts), _deadline(facts, since)) if fact]
    if job.cancelling:
        said.append("It was asked to stop: whoever ends it or takes it back honours that.")
    return " ".join(said)


def _liveness(facts: Facts) -> str:
    """What speaks for or against the life of its worker."""
    job, owner = facts.job, facts.owner
    if job.worker is None or job.lease_until is None:
        return f"It has no owner or no lease, which cannot be: the audit puts it back.{_who(facts)}"
    if facts.lock_free:
        return (
            "Its worker's liveness lock is free: that process is dead, and any live worker takes"
            f" the job back at its next look.{_who(facts)}"
        )
    if owner is None:
        return "Its worker is not listed any more."
    if not owner.alive:
        return f"Its worker has been silent for {span(owner.silent_for)}."
    return ""


def _lease(facts: Facts) -> str:
    job = facts.job
    if job.lease_until is None:
        return ""
    left = job.lease_until.timestamp() - facts.now
    if left <= 0:
        return (
            f"Its lease expired {span(-left)} ago: it will be reclaimed at any live worker's next"
            f" look.{_who(facts)}"
        )
    if facts.owner is None and left > ENDLESS:
        return (
            f"Its lease is good for {span(left)}, longer than any worker takes: the audit takes it"
            f" back.{_who(facts)}"
        )
    return f"Its lease is good for {span(left)}."


def _deadline(facts: Facts, since: float) -> str:
    if facts.job.timeout is None:
        return ""
    left = facts.job.timeout - since
    if left > 0:
        return f"Its timeout is in {span(left)}."
    return (
        f"It ran past its timeout {span(-left)} ago: its worker should have stopped it, and the"
        f" others end it soon.{_who(facts)}"
    )


def _who(facts: Facts) -> str:
    """Who would do it, if anybody."""
    return (
        "" if facts.alive else " No worker is alive to do so: start one with `outlast worker APP`."
    )
