"""Explain why a job is not running: facts from the database, and a function that words them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..model.breaker import Circuit
from ..model.humanize import format_duration, pluralize
from ..model.job import Job
from ..model.lifecycle import QUEUED, State
from ..model.outcome import reason
from ..model.uniqueness import DEBOUNCE
from ..model.unreadable import UNREADABLE
from . import report
from .access import ALL_JOBS, Access
from .breaker_report import BreakerState, breaker_of, breakers
from .flow_links import FAILED_STATES
from .flow_report import prerequisites_in, root_cause
from .lane_report import LaneSlots, lane_slots
from .operation import Op
from .reclaim import signs_of_loss
from .report import WorkerInfo
from .unique_keys import unique_mode
from .wait_report import WaitRecord, current_wait, explain_wait

LIVE = {*QUEUED, State.RUNNING}
MAX_NAMED_JOBS = 3  # prerequisites named in an explanation
MAX_PLAUSIBLE_LEASE_S = 3600.0  # a longer lease of an unlisted worker is damage


@dataclass(frozen=True, slots=True)
class JobFacts:
    """The facts about one job, at one time by the database's clock."""

    job: Job
    now: float
    paused: bool  # its queue
    workers: list[WorkerInfo]
    ahead: int
    lock_free: bool = False  # the liveness lock of its worker is free
    prerequisites: int = 0  # number of prerequisites
    open: Sequence[Job] = ()  # the first unfinished ones
    cause: Job | None = None  # the prerequisite whose failure ended it
    access: Access = ALL_JOBS  # of the reader: other jobs are not named
    breaker: BreakerState | None = None  # of its task in its queue, if it is open
    slots: LaneSlots | None = None  # of its lane, in a limited queue
    debounced: bool = False
    wait: WaitRecord | None = None  # what its handler waits for

    @property
    def owner(self) -> WorkerInfo | None:
        return next((worker for worker in self.workers if worker.id == self.job.worker), None)

    @property
    def alive(self) -> list[WorkerInfo]:
        """Live workers, without this job's own if that is known to be dead."""
        gone = self.job.worker if self.lock_free else None
        return [worker for worker in self.workers if worker.alive and worker.id != gone]

    def sees(self, other: Job) -> bool:
        """Whether the reader may see another job."""
        return self.access.allows(other.tenant, other.queue)


def explain(
    id: str,
    confirm_dead: Callable[[Sequence[str]], list[str]],
    reach: Access = ALL_JOBS,
) -> Op[str]:
    """Explain the state of a job. `confirm_dead` tells which of the workers with a sign of death
    are dead, if that is decided outside the database."""
    job = yield from report.job(id, reach)
    now = yield from report.clock()
    paused = yield from report.paused()
    workers = yield from report.worker_rows()
    ahead = (yield from report.ahead(id, reach)) if job.state is State.READY else 0
    free = False
    if job.state is State.RUNNING:
        signs = yield from signs_of_loss()
        free = bool(confirm_dead([worker for worker in signs.workers if worker == job.worker]))
    before, still_open = 0, list[Job]()
    wait = yield from current_wait(job)
    if job.state is State.WAITING and wait is None:
        before, still_open = yield from prerequisites_in(id, LIVE, MAX_NAMED_JOBS)
    cause = (yield from root_cause(job)) if job.state in FAILED_STATES else None
    stopped = paused.get(job.queue, False)
    breaker = breaker_of((yield from breakers()), Circuit(job.queue, job.task))
    slots = None
    if job.state is State.READY and job.lane is not None:
        slots = yield from lane_slots(job.queue, job.lane, now, reach)
    debounced = False
    if job.state is State.SCHEDULED and job.key is not None:
        debounced = (yield from unique_mode(id)) == DEBOUNCE
    facts = JobFacts(
        job, now, stopped, workers, ahead, free, before, still_open, cause, reach, breaker, slots,
        debounced, wait,
    )  # fmt: skip
    return describe(facts)


def describe(facts: JobFacts) -> str:
    text, wrong = _describe_state(facts), facts.job.unreadable
    return text if wrong is None else f"Its row is partly unreadable: {wrong}. {text}"


def _describe_state(facts: JobFacts) -> str:
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
                f"It is dead after {pluralize(job.failures, 'failure')} (of {job.max_attempts}) and"
                f" {pluralize(job.crashes, 'lost worker')} (of {job.max_crashes}):"
                f" {reason(job.error)}. It is kept until an operator acts: `outlast retry {job.id}`"
                " runs it again."
            )


def _ready(facts: JobFacts) -> str:
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
    if facts.slots is not None and (obstacle := facts.slots.obstacle(job.id)):
        return obstacle
    many = "at least " if facts.ahead >= report.MAX_AHEAD else ""
    number = f"{many}{pluralize(facts.ahead, 'job')}" if facts.ahead else "no job"
    whose = " of yours" if facts.access.tenant is not None else ""
    position = f"{number}{whose} of its queue"
    busy = all(worker.running >= worker.concurrency for worker in able)
    why = "all of them are busy" if busy else "their next poll claims it"
    suspect = (
        f" It has crashed {pluralize(job.crashes, 'worker')}, and one more crash would end it: no"
        " other such job runs beside it."
        if job.crashes and job.crashes + 1 >= job.max_crashes
        else ""
    )
    able_ones = pluralize(len(able), "worker")
    return f"It is ready, with {position} before it. {able_ones} can run it; {why}.{suspect}"


def _held_back(breaker: BreakerState, facts: JobFacts) -> str:
    why = breaker.reason if facts.access.tenant is None else breaker.kind
    close = (
        f" `outlast close-breaker {breaker.queue} {breaker.task}` lets its jobs run at once."
        if facts.access.tenant is None
        else ""
    )
    return (
        "The circuit breaker of its task in its queue has been open for"
        f" {format_duration(breaker.open_for)}:"
        f" {why}. It is held back, unspent, until a probe succeeds; {breaker.probe_in_words}."
        f"{_no_worker_alive(facts)}{_no_prober(facts)}{close}"
    )


def _no_prober(facts: JobFacts) -> str:
    """A due probe waits for a worker that can run it."""
    job = facts.job
    able = [one for one in facts.alive if one.serves(job.queue) and job.task in one.tasks]
    if able or not facts.alive:
        return ""
    return f" No live worker serves the queue {job.queue!r} and knows the task {job.task!r}."


def _waiting(facts: JobFacts) -> str:
    job = facts.job
    if expired := _expired(facts):
        return expired
    if facts.wait is not None:
        return explain_wait(facts.wait, job.id, facts.now, _no_worker_alive(facts))
    named = [f"{one.task} {one.id} ({one.state})" for one in facts.open if facts.sees(one)]
    more = job.waits_for - len(named)
    rest = f" and {more} more" if more > 0 else ""
    which = f": {', '.join(named)}{rest}." if named else "."
    if not facts.open:
        which += (
            " All of them have ended, which is an inconsistency: the audit repairs"
            f" it.{_no_worker_alive(facts)}"
        )
    elif not named:
        which = "; jobs of other tenants are not shown."
    return (
        f"It waits for {job.waits_for} of its"
        f" {pluralize(facts.prerequisites, 'prerequisite')}{which}"
    )


def _doomed(cause: Job, facts: JobFacts) -> str:
    state = facts.job.state
    if not facts.sees(cause):
        return (
            f"It never ran and is {state}, because another tenant's prerequisite did not succeed."
        )
    return (
        f"It never ran and is {state}, because its prerequisite {cause.task} {cause.id} is"
        f" {cause.state}: {reason(cause.error)}. `outlast retry {cause.id}` retries both."
    )


def _expired(facts: JobFacts) -> str:
    expires_at = facts.job.expires_at
    if expires_at is None or expires_at.timestamp() > facts.now:
        return ""
    since = format_duration(facts.now - expires_at.timestamp())
    if facts.alive:
        return f"It expired {since} ago, and will be cancelled in a moment."
    return f"It expired {since} ago and will not be run; the next worker that starts cancels it."


def _scheduled(facts: JobFacts) -> str:
    job = facts.job
    if expired := _expired(facts):
        return expired
    if facts.wait is not None:
        return explain_wait(facts.wait, job.id, facts.now, _no_worker_alive(facts))
    wait = job.run_at.timestamp() - facts.now
    when = f"in {format_duration(wait)}" if wait > 0 else "now, at the next poll of a worker"
    if wait <= 0 and not facts.alive:
        when = f"(due {format_duration(-wait)} ago) when a worker is alive: start one"
    held = "" if facts.breaker is None else f" {_held_back(facts.breaker, facts)}"
    if job.failures or job.attempt:
        return (
            f"It tries again {when} (attempt {job.attempt + 1},"
            f" {pluralize(job.failures, 'failure')}"
            f" of {job.max_attempts}). Last error: {reason(job.error)}.{held}"
        )
    again = (
        f" It is debounced: another call with its key {job.key!r} delays it and replaces its"
        " arguments."
        if facts.debounced and wait > 0
        else ""
    )
    return f"It is scheduled to run {when}.{again}{held}"


def _running(facts: JobFacts) -> str:
    job, owner = facts.job, facts.owner
    who = f"worker {job.worker}" + (f" (pid {owner.pid} on {owner.host})" if owner else "")
    since = facts.now - job.started_at.timestamp() if job.started_at else 0.0
    sentences = [f"It is running on {who}, attempt {job.attempt}, for {format_duration(since)}."]
    sentences += [
        fact for fact in (_liveness(facts), _lease(facts), _deadline(facts, since)) if fact
    ]
    if job.cancelling:
        sentences.append("It was asked to stop, and ends as cancelled.")
    return " ".join(sentences)


def _liveness(facts: JobFacts) -> str:
    """Signs of life or death of its worker."""
    job, owner = facts.job, facts.owner
    if job.worker is None or job.lease_until is None:
        return (
            "It has no owner or no lease, which is an inconsistency: the audit releases"
            f" it.{_no_worker_alive(facts)}"
        )
    if facts.lock_free:
        return (
            "Its worker's liveness lock is free: that process is dead, and the next poll of a live"
            f" worker reclaims the job.{_no_worker_alive(facts)}"
        )
    if owner is None:
        return "Its worker is not listed any more."
    if not owner.alive:
        return f"Its worker has been silent for {format_duration(owner.silent_for)}."
    return ""


def _lease(facts: JobFacts) -> str:
    job = facts.job
    if job.lease_until is None:
        return ""
    left = job.lease_until.timestamp() - facts.now
    if left <= 0:
        return (
            f"Its lease expired {format_duration(-left)} ago: the next poll of a live worker"
            f" reclaims it.{_no_worker_alive(facts)}"
        )
    if facts.owner is None and left > MAX_PLAUSIBLE_LEASE_S:
        return (
            f"Its lease is good for {format_duration(left)}, longer than any worker takes: the"
            f" audit reclaims it.{_no_worker_alive(facts)}"
        )
    return f"Its lease is good for {format_duration(left)}."


def _deadline(facts: JobFacts, since: float) -> str:
    if facts.job.timeout is None:
        return ""
    left = facts.job.timeout - since
    if left > 0:
        return f"Its timeout is in {format_duration(left)}."
    return (
        f"It ran past its timeout {format_duration(-left)} ago: its worker should have stopped"
        f" it, and another worker ends it soon.{_no_worker_alive(facts)}"
    )


def _no_worker_alive(facts: JobFacts) -> str:
    """A hint if no worker is alive to act."""
    return (
        "" if facts.alive else " No worker is alive to do so: start one with `outlast worker APP`."
    )
