"""Every metric that there is. `docs/reference/metrics.md` is made from this, and the alert rules
and the dashboard that are shipped may name no other: tests compare them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Origin(StrEnum):
    """Whose figure it is."""

    TABLES = "tables"  # measured in the database: the same from every process
    PROCESS = "process"  # every process
    WORKER = "worker"
    SUPERVISOR = "supervisor"
    WORK = "worker, supervisor"
    SERVICE = "service"


@dataclass(frozen=True, slots=True)
class Metric:
    name: str
    kind: str  # gauge, counter or histogram
    origin: Origin
    about: str
    labels: tuple[str, ...] = ()

    @property
    def family(self) -> str:
        """Its name without the suffix that every counter has."""
        return self.name.removesuffix("_total")


def _gauge(name: str, origin: Origin, about: str, *labels: str) -> Metric:
    return Metric(f"outlast_{name}", "gauge", origin, about, labels)


def _counter(name: str, origin: Origin, about: str, *labels: str) -> Metric:
    return Metric(f"outlast_{name}_total", "counter", origin, about, labels)


def _histogram(name: str, origin: Origin, about: str, *labels: str) -> Metric:
    return Metric(f"outlast_{name}", "histogram", origin, about, labels)


_T, _P, _W, _S, _WS, _N = (
    Origin.TABLES, Origin.PROCESS, Origin.WORKER, Origin.SUPERVISOR, Origin.WORK, Origin.SERVICE,
)  # fmt: skip

_ALL = (
    # The tables
    _gauge("jobs", _T, "Jobs that have not ended, and dead ones.", "queue", "state"),
    _gauge("oldest_seconds", _T,
           "How long the oldest job has existed, by created_at, however often it was put back.",
           "queue", "state"),
    _gauge("dwell_seconds", _T,
           "How long the job that is due for longest has been due and not been claimed.", "queue"),
    _gauge("expired_leases", _T, "Running jobs whose lease ran out and that nobody took back yet."),
    _gauge("expired_lease_seconds", _T, "How long ago the first of these leases ran out."),
    _gauge("queue_most_waiting", _T, "Ready jobs that a queue holds before it is full.", "queue"),
    _gauge("queue_paused", _T, "1 for a queue that is paused.", "queue"),
    _gauge("breaker_open", _T,
           "1 while the circuit breaker of a task in a queue is open; 0 once it is closed again.",
           "queue", "task"),
    _gauge("schedules", _T, "Schedules; error: marked with an error, and not fired.", "state"),
    _gauge("schedule_overdue_seconds", _T,
           "For how long the schedule has been due that is due for longest and has not fired."),
    _gauge("workers", _T, "Worker processes; silent: not heard of for longer than their lease.",
           "state"),
    _gauge("duty_last_success_seconds", _T,
           "Seconds since a duty last went well, by the database's clock; +Inf if it never did.",
           "duty"),
    _gauge("duty_every_seconds", _T, "How often a duty is to be done.", "duty"),
    _counter("duty_found", _T, "What a duty or a class of the audit found.", "duty"),
    _counter("duty_healed", _T, "What it healed.", "duty"),
    _counter("duty_skipped", _T, "What it left alone.", "duty"),
    _counter("duty_failed", _T, "What it could not heal.", "duty"),
    # Every process
    _gauge("info", _P, "1; says which release this process runs, and what it is.",
           "version", "role"),
    _gauge("snapshot_age_seconds", _P,
           "How old what was measured in the tables is; it grows while the database is away."),
    _gauge("snapshot_cost_seconds", _P, "How long it took to measure the tables."),
    _counter("snapshot_failures", _P, "How often the tables could not be measured."),
    _counter("log_lines_dropped", _P, "Log lines that nobody read fast enough."),
    # What a worker does
    _counter("claims", _W, "Jobs claimed.", "queue"),
    _counter("breaker_openings", _W,
             "Circuit breakers that this worker opened: outages of what a task depends on.",
             "queue", "task"),
    _counter("finishes", _W, "Attempts whose end was accepted, by how they ended.", "outcome"),
    _counter("retries", _W, "Attempts after which a job is tried again, by how they ended.",
             "outcome"),
    _counter("dead", _WS, "Jobs that gave up, by how their last attempt ended.", "outcome"),
    _counter("released", _W, "Jobs put back unspent."),
    _counter("reclaimed", _WS,
             "Jobs taken back from owners that were lost, by how that was noticed and by the class"
             " of orphan.", "way", "class"),
    _counter("buried", _WS, "Workers found dead."),
    _counter("zombie_writes_refused", _W,
             "Outcomes refused because the claim had been lost to somebody else."),
    _counter("claims_lost", _W, "Claims that a worker found lost, and whose handlers it stopped."),
    _counter("claims_late", _W, "Claims whose answer came too late to be started."),
    _counter("claims_deferred", _W, "Times that a worker claimed nothing for want of memory."),
    _counter("unhandled", _W, "Jobs put back because their task is unknown here."),
    _counter("abandoned", _W, "Handlers left behind because they did not stop."),
    _counter("overdue", _W, "Jobs given up because their handler blocked the event loop."),
    _counter("wakeups", _W, "Times that a worker was told of news."),
    _counter("turn_failures", _W, "Turns of a worker's loop that failed."),
    _counter("strays", _W, "Jobs in hand that were in nobody's care, since the worker failed."),
    _counter("outcomes_unstorable", _W,
             "Outcomes that could not be stored as they were, and became failures that say so."),
    _counter("schedules_fired", _W, "Jobs that this worker made for ticks of schedules."),
    _counter("schedules_missed", _W, "Ticks without a job because no worker was there in time."),
    _counter("schedules_skipped", _W, "Ticks without a job because an earlier run was going on."),
    _counter("schedules_late", _W, "Jobs of ticks that were made more than a minute late."),
    _counter("events_dropped", _W, "Events of handlers that could not be kept."),
    _counter("audited", _W, "What the audit found that should be impossible.", "class"),
    _counter("loop_passes", _W, "Passes of the loops that renew, heal and keep house.", "loop"),
    _counter("loop_failures", _W, "Those of them that failed.", "loop"),
    _histogram("wait_seconds", _W, "From when a job was due until it was claimed.", "queue"),
    _histogram("run_seconds", _W, "From the start of a handler to its end.", "task"),
    _gauge("in_hand", _W, "Jobs in a worker's hands."),
    _gauge("outcomes_held_up", _W,
           "Outcomes that the database refuses, while it is there; each is tried again alone."),
    _gauge("concurrency", _W, "Jobs that a worker takes in hand at the most."),
    _gauge("handlers_stuck", _W, "Abandoned handlers that still hold a thread."),
    _gauge("lease_seconds", _W, "How long a claim is held without being renewed."),
    _gauge("renewal_lag_seconds", _W, "How much too late the next renewal of leases is."),
    _gauge("beat_age_seconds", _WS, "Seconds since the process's own loop last went round."),
    # A supervisor
    _gauge("children", _S, "Worker processes of a supervisor; down: to be started again.", "state"),
    _counter("child_exits", _S, "Ends of worker processes.", "how"),
    # The service
    _gauge("event_subscribers", _N, "Clients that follow events."),
    _gauge("event_lag_seconds", _N, "How far the slowest of them is behind."),
    _counter("event_subscribers_cut", _N, "Clients that were too slow, and were cut off."),
    _gauge("dequeue_streams", _N, "Remote workers that are connected."),
    _counter("offers", _N, "Jobs offered to remote workers."),
    _counter("offers_released", _N, "Offers taken back because they could not be sent."),
    _counter("offers_lapsed", _N, "Offers that nobody accepted in time."),
    _counter("duplicate_deliveries", _N, "Outcomes that were reported again, and stood already."),
)  # fmt: skip

CATALOGUE = {metric.name: metric for metric in _ALL}

# Everything that a label can be in these, told from the start: a rate needs a zero to grow from.
RECLAIM_REASONS = (
    *((way, orphan) for way in ("exit", "lock", "lease")
      for orphan in ("owner-dead", "poison", "uncancelled")),
    ("deadline", "owner-hung"), ("deadline", "uncancelled"), ("owner", "forgotten"),
)  # fmt: skip
RETRIED = ("failed", "timed-out", "postponed")
DEADLY = ("failed", "timed-out", "permanent", "undecodable", "crashed", "stalled")
