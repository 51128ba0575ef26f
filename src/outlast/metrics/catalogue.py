"""The catalogue of metrics. `docs/reference/metrics.md` is generated from it, and tests check that
the shipped alert rules and dashboard use no other names."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Origin(StrEnum):
    """The source of a metric."""

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
        """The name without the suffix of counters."""
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
           "Age of the oldest job by created_at, however often it was released.",
           "queue", "state"),
    _gauge("dwell_seconds", _T,
           "Longest time that an unclaimed job has been due.", "queue"),
    _gauge("waiting_handlers", _T,
           "Jobs whose handlers wait for a signal or a job; the 20 most frequent names of waits.",
           "wait"),
    _gauge("waiting_handlers_oldest_seconds", _T,
           "Seconds since the first of these began to wait.", "wait"),
    _gauge("expired_leases", _T, "Running jobs with an expired lease that are not reclaimed yet."),
    _gauge("expired_lease_seconds", _T, "Seconds since the first of these leases expired."),
    _gauge("queue_most_waiting", _T, "Maximum ready jobs of a bounded queue.", "queue"),
    _gauge("queue_running_limit", _T, "Maximum running jobs of a limited queue.", "queue"),
    _gauge("queue_throttled", _T, "1 while the rate of a queue is used up.", "queue"),
    _gauge("lanes", _T,
           "Lanes of a limited queue; waiting: with ready jobs (counted up to 1,000);"
           " throttled: the rate is used up, or slowed down; paused.", "queue", "state"),
    _gauge("queue_quota", _T, "Jobs that a queue admits in a period.", "queue"),
    _gauge("queue_quota_used", _T, "Jobs that it has admitted in this period.", "queue"),
    _gauge("queue_paused", _T, "1 for a queue that is paused.", "queue"),
    _gauge("breaker_open", _T,
           "1 while the circuit breaker of a task in a queue is open; 0 once it is closed again.",
           "queue", "task"),
    _gauge("schedules", _T, "Schedules; error: has an error and does not fire.", "state"),
    _gauge("schedule_overdue_seconds", _T,
           "Longest time that a schedule has been due without firing."),
    _gauge("source_lag", _T, "Messages of a source that wait at its broker.", "source"),
    _gauge("source_failing", _T, "1 while a source cannot receive or store messages.", "source"),
    _counter("source_messages", _T,
             "Messages that a source received; known: they came again.", "source", "result"),
    _gauge("archived_jobs", _T, "Succeeded jobs in the archive (PostgreSQL)."),
    _gauge("archive_oldest_seconds", _T, "Seconds since the first day of the archive began."),
    _gauge("archive_partitions", _T, "Days of the archive, each a table that is dropped whole."),
    _gauge("workers", _T, "Worker processes; silent: no heartbeat for longer than their lease.",
           "state"),
    _gauge("duty_last_success_seconds", _T,
           "Seconds since a duty last succeeded, by the database's clock; +Inf if never.",
           "duty"),
    _gauge("duty_every_seconds", _T, "Interval of a duty.", "duty"),
    _counter("duty_found", _T, "Rows that a duty or a class of the audit found.", "duty"),
    _counter("duty_healed", _T, "Rows that it healed.", "duty"),
    _counter("duty_skipped", _T, "Rows that it left alone.", "duty"),
    _counter("duty_failed", _T, "Rows that it could not heal.", "duty"),
    # Every process
    _gauge("info", _P, "1; the release and role of this process.",
           "version", "role"),
    _gauge("snapshot_age_seconds", _P,
           "Age of the table metrics; grows while the database is unavailable."),
    _gauge("snapshot_cost_seconds", _P, "Duration of the last read of the table metrics."),
    _counter("snapshot_failures", _P, "Failed reads of the table metrics."),
    _counter("log_lines_dropped", _P, "Log lines dropped because their reader was too slow."),
    # A worker
    _counter("claims", _W, "Jobs claimed.", "queue"),
    _counter("breaker_openings", _W,
             "Circuit breakers that this worker opened: outages of a task's dependency.",
             "queue", "task"),
    _counter("outbox_messages", _W,
             "Messages that this worker sent, or did not; unsent: because the sink was down, or an"
             " earlier message of the key was not sent.", "queue", "task", "result"),
    _counter("finishes", _W, "Attempts whose end was accepted, by outcome.", "outcome"),
    _counter("retries", _W, "Attempts after which a job is retried, by outcome.",
             "outcome"),
    _counter("dead", _WS, "Jobs that became dead, by the outcome of the last attempt.", "outcome"),
    _counter("released", _W, "Jobs released unspent."),
    _counter("reclaimed", _WS,
             "Jobs reclaimed from lost owners, by how the loss was noticed and by the class"
             " of orphan.", "way", "class"),
    _counter("buried", _WS, "Workers found dead."),
    _counter("zombie_writes_refused", _W,
             "Outcomes refused because the claim was lost."),
    _counter("claims_lost", _W, "Claims that a worker found lost, and whose handlers it stopped."),
    _counter("claims_late", _W, "Claims that arrived too late to be started."),
    _counter("claims_deferred", _W, "Times that a worker claimed nothing for lack of memory."),
    _counter("unhandled", _W, "Jobs released because their task is unknown here."),
    _counter("abandoned", _W, "Handlers abandoned because they did not stop."),
    _counter("overdue", _W, "Jobs dropped because their handler blocked the event loop."),
    _counter("wakeups", _W, "Notifications that a worker received."),
    _counter("turn_failures", _W, "Failed cycles of a worker's loop."),
    _counter("strays", _W, "Jobs in flight that the worker lost track of by an internal error."),
    _counter("outcomes_unstorable", _W,
             "Outcomes that could not be stored and became failures with that reason."),
    _counter("schedules_fired", _W, "Jobs that this worker enqueued for schedules."),
    _counter("schedules_missed", _W, "Ticks without a job because no worker was alive in time."),
    _counter("schedules_skipped", _W, "Ticks without a job because an earlier run had not ended."),
    _counter("schedules_late", _W, "Jobs of schedules that were enqueued more than a minute late."),
    _counter("events_dropped", _W, "Events of handlers that could not be stored."),
    _counter("audited", _W, "Rows that the audit found and that should be impossible.", "class"),
    _counter("loop_passes", _W, "Passes of loops for renewal, reclaim and maintenance.", "loop"),
    _counter("loop_failures", _W, "Failed passes of these loops.", "loop"),
    _histogram("wait_seconds", _W, "From when a job was due until it was claimed.", "queue"),
    _histogram("run_seconds", _W, "From the start of a handler to its end.", "task"),
    _gauge("in_hand", _W, "Jobs in flight in a worker."),
    _gauge("outcomes_held_up", _W,
           "Outcomes that the database refuses although it is available; each is retried alone."),
    _gauge("concurrency", _W, "Maximum concurrent jobs of a worker."),
    _gauge("handlers_stuck", _W, "Abandoned handlers that still hold a thread."),
    _gauge("lease_seconds", _W, "How long a claim is held without being renewed."),
    _gauge("renewal_lag_seconds", _W, "Delay of the next renewal of leases."),
    _gauge("beat_age_seconds", _WS, "Seconds since the last cycle of the process's own loop."),
    # A supervisor
    _gauge("children", _S, "Worker processes of a supervisor; down: to be restarted.", "state"),
    _counter("child_exits", _S, "Exits of worker processes.", "how"),
    # The service
    _gauge("event_subscribers", _N, "Clients that follow events."),
    _gauge("event_lag_seconds", _N, "Lag of the slowest of them."),
    _counter("event_subscribers_cut", _N, "Clients disconnected because they were too slow."),
    _gauge("dequeue_streams", _N, "Remote workers that are connected."),
    _counter("offers", _N, "Jobs offered to remote workers."),
    _counter("offers_released", _N, "Offers released because they could not be sent."),
    _counter("offers_lapsed", _N, "Offers that were not accepted in time."),
    _counter("duplicate_deliveries", _N, "Outcomes that were reported again and stored before."),
)  # fmt: skip

CATALOGUE = {metric.name: metric for metric in _ALL}

# Every value of these labels, exposed from the start: a rate needs a zero to start from.
RECLAIM_REASONS = (
    *((way, orphan) for way in ("exit", "lock", "lease")
      for orphan in ("owner-dead", "poison", "uncancelled")),
    ("deadline", "owner-hung"), ("deadline", "uncancelled"), ("owner", "forgotten"),
)  # fmt: skip
RETRIED = ("failed", "timed-out", "postponed")
DEADLY = ("failed", "timed-out", "permanent", "undecodable", "crashed", "stalled")
