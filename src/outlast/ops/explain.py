"""Why is it not running? Facts from the database, and a pure function that puts them in words."""

from __future__ import annotations

from dataclasses import dataclass

from ..model.job import Job
from ..model.lifecycle import State
from ..model.outcome import reason
from ..model.words import count, span
from . import report
from .report import Queue, Worker
from .statement import Op


@dataclass(frozen=True, slots=True)
class Facts:
    """All that bears on one job, at one moment by the database's clock."""

    job: Job
    now: float
    queue: Queue | None
    workers: list[Worker]
    ahead: int


def explain(id: str) -> Op[str]:
    job = yield from report.job(id)
    now = yield from report.clock()
    queues = yield from report.queues()
    workers = yield from report.workers()
    ahead = (yield from report.ahead(id)) if job.state is State.READY else 0
    queue = next((queue for queue in queues if queue.name == job.queue), None)
    return in_words(Facts(job, now, queue, workers, ahead))


def in_words(facts: Facts) -> str:
    job = facts.job
    match job.state:
        case State.READY:
            return _ready(facts)
        case State.SCHEDULED:
            return _scheduled(facts)
        case State.RUNNING:
            return _running(facts)
        case State.WAITING:
            return "It waits for the jobs it comes after."
        case State.SUCCEEDED:
            return f"It succeeded on attempt {job.attempt}."
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
    if job.expires_at and job.expires_at.timestamp() <= facts.now:
        return "It has expired, and will be cancelled in a moment."
    if facts.queue and facts.queue.paused:
        return f"Its queue is paused: `outlast resume {job.queue}` lets it run."
    alive = [worker for worker in facts.workers if worker.alive]
    if not alive:
        return "No worker is alive: start one with `outlast worker APP`."
    serving = [worker for worker in alive if worker.serves(job.queue)]
    if not serving:
        return f"No live worker serves the queue {job.queue!r}."
    able = [worker for worker in serving if job.task in worker.tasks]
    if not able:
        return (
            f"No live worker that serves {job.queue!r} knows the task {job.task!r}: deploy the code"
            " that defines it. Meanwhile the job is kept, unspent."
        )
    place = f"{count(facts.ahead, 'job')} of its queue" if facts.ahead else "no job of its queue"
    busy = all(worker.running >= worker.concurrency for worker in able)
    why = "all of them are busy" if busy else "it will be claimed at their next look"
    return f"It is ready, with {place} before it. {count(len(able), 'worker')} can run it; {why}."


def _scheduled(facts: Facts) -> str:
    job = facts.job
    wait = job.run_at.timestamp() - facts.now
    when = f"in {span(wait)}" if wait > 0 else "now: the next worker that looks takes it"
    if job.failures or job.attempt:
        return (
            f"It tries again {when} (attempt {job.attempt + 1}, {count(job.failures, 'failure')}"
            f" of {job.max_attempts}). Last error: {reason(job.error)}."
        )
    return f"It is scheduled to run {when}."


def _running(facts: Facts) -> str:
    job = facts.job
    owner = next((worker for worker in facts.workers if worker.id == job.worker), None)
    who = f"worker {job.worker}" + (f" (pid {owner.pid} on {owner.host})" if owner else "")
    since = facts.now - job.started_at.timestamp() if job.started_at else 0.0
    left = job.lease_until.timestamp() - facts.now if job.lease_until else 0.0
    lease = (
        f"its lease is good for {span(left)}"
        if left > 0
        else f"its lease expired {span(-left)} ago: it will be reclaimed at any live worker's next"
        " look"
    )
    stop = " It was asked to stop." if job.cancelling else ""
    return f"It is running on {who}, attempt {job.attempt}, for {span(since)}; {lease}.{stop}"
