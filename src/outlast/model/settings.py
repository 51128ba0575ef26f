"""Settings: one frozen value per part, each validating itself with a message that names the field.

Command-line flags and environment variables derive from the fields: `lease` of `WorkerSettings` is
`--lease` and `OUTLAST_LEASE`. `docs/reference/settings.md` is compared with this file by a test.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Self, TypedDict, TypeVar

from .errors import InvalidSetting
from .retry import MAX_DELAY_S
from .spelling import did_you_mean
from .timestamps import is_finite

RENEW_EVERY = 5.0  # seconds
DAY = 86400.0  # seconds; PostgreSQL takes a timeout of up to 24 days


def setting(default: object, about: str, low: float, high: float | None = None) -> Any:
    """A field with its description and range, both ends included. Seconds are always bounded:
    databases refuse to add 1e300 to a time."""
    if high is None:
        high = MAX_DELAY_S if isinstance(default, float) else math.inf
    return field(default=default, metadata={"about": about, "low": low, "high": high})


class Settings:
    """Checks every field against its type and range."""

    def __new__(cls, *args: object, **given: object) -> Self:
        cls._refuse_unknown(given)
        return super().__new__(cls)

    @classmethod
    def _refuse_unknown(cls, given: Mapping[str, object]) -> None:
        known = [spec.name for spec in fields(cls)]  # type: ignore[arg-type]
        for name in given:
            if name not in known:
                raise InvalidSetting(
                    f"{cls.__name__} has no setting {name!r:.80}{did_you_mean(name, known)}"
                    f" Settings: {', '.join(sorted(known))}.",
                    field=name,
                    reason="is unknown",
                )

    def __post_init__(self) -> None:
        for spec in fields(self):  # type: ignore[arg-type]
            _check(spec.name, getattr(self, spec.name), spec.default, spec.metadata)

    @classmethod
    def of(cls, environ: Mapping[str, str] = os.environ, /, **given: object) -> Self:
        """Given values first, then the environment, then the defaults."""
        known = {spec.name: spec for spec in fields(cls)}  # type: ignore[arg-type]
        cls._refuse_unknown(given)
        values = {name: value for name, value in given.items() if value is not None}
        for name, spec in known.items():
            variable = f"OUTLAST_{name.upper()}"
            if name not in values and variable in environ:
                values[name] = _parse(variable, environ[variable], spec.default)
        return cls(**{**cls.derived(values), **values})

    @classmethod
    def derived(cls, given: Mapping[str, object]) -> dict[str, object]:
        """Defaults that depend on other given fields."""
        return {}


S = TypeVar("S", bound=Settings)


def checked(field: str, given: S | None, kind: type[S]) -> S:
    """The given settings, or else those of the environment."""
    if given is None:
        return kind.of()
    if not isinstance(given, kind):
        raise InvalidSetting(
            field=field, reason=f"must be {kind.__name__}.of(…), not {given!r:.80}"
        )
    return given


@dataclass(frozen=True, slots=True)
class StoreSettings(Settings):
    """Settings of the database connections."""

    statement_timeout: float = setting(
        10.0, "seconds one statement may run in the database", 0.1, DAY
    )
    lock_timeout: float = setting(5.0, "seconds a statement may wait for a lock", 0.05, DAY)
    idle_timeout: float = setting(
        10.0, "seconds a transaction may stay idle before PostgreSQL ends it", 0.1, DAY
    )
    connect_timeout: float = setting(5.0, "seconds to wait for a connection", 0.1, DAY)
    deadline: float = setting(
        15.0,
        "seconds any call may take on the client's clock; then its connection is closed",
        0.1,
        DAY,
    )
    pool_size: int = setting(
        10, "maximum connections of one process for callers, in all threads and loops", 1, 1000
    )
    prepare: bool = setting(
        True, "use named prepared statements (PostgreSQL; never through a pooler)", 0
    )
    checkpoint_pages: int = setting(
        2000, "pages in SQLite's write-ahead log before a checkpoint", 10, 1_000_000
    )
    blob_over: int = setting(
        100_000,
        "characters of JSON above which arguments or a result go to the blob store, if any",
        1_000,
        1_000_000,
    )
    blob_limit: int = setting(
        250_000_000, "maximum bytes of arguments or a result, as JSON, with a blob store", 1_000_000
    )
    stream_limit: int = setting(
        1_000_000,
        "maximum bytes of streamed output that a job keeps, as JSON; the rest is cut off",
        1_000,
        1_000_000_000,
    )


@dataclass(frozen=True, slots=True)
class EnqueueSettings(Settings):
    """Settings that apply to every enqueue."""

    tenant_required: bool = setting(False, "refuse jobs that name no tenant", 0, 1)


@dataclass(frozen=True, slots=True)
class WorkerSettings(Settings):
    """Settings of a worker."""

    concurrency: int = setting(
        32, "jobs in flight at once in one process; a batch counts as one", 1, 10_000
    )
    lease: float = setting(15.0, "seconds a claim is held without being renewed", 0.2, 86400)
    renew_every: float = setting(
        RENEW_EVERY,
        "seconds between renewals; at most a third of lease; if not given, 5 or that third",
        0.05,
    )
    reclaim_every: float = setting(0.5, "seconds between checks for lost claims", 0.05, 3600)
    audit_every: float = setting(
        60.0, "seconds between audits for states that should be impossible", 0.05, 86400
    )
    poll_min: float = setting(0.01, "seconds before an idle worker polls again", 0.001)
    poll_max: float = setting(1.0, "maximum seconds between polls of an idle worker", 0.01, 3600)
    watch_every: float = setting(
        0.005, "seconds between checks for a changed file (SQLite)", 0.001, 10
    )
    grace: float = setting(25.0, "seconds that running jobs have to end at shutdown", 0.0)
    cancel_grace: float = setting(
        5.0, "seconds a cancelled or timed-out handler has to return before it is abandoned", 0.0
    )
    stall_limit: float = setting(
        300.0, "seconds its event loop may block before a worker process exits; 0: no limit", 0
    )
    live_within: float = setting(
        30.0, "seconds its event loop may block before /livez reports it as stuck", 0.5
    )
    memory_floor: int = setting(
        0, "MB of memory that must be free for a worker to claim; 0: not checked", 0
    )
    sources: bool = setting(True, "receive messages from the sources that the app declares", 0)
    log_error_messages: bool = setting(
        True, "log the message of a handler's error, not only its type", 0
    )
    log_tracebacks: bool = setting(False, "log the traceback of a handler's error", 0)

    @classmethod
    def derived(cls, given: Mapping[str, object]) -> dict[str, object]:
        lease = given.get("lease")
        if isinstance(lease, int | float) and 0 < lease < 3 * RENEW_EVERY:
            return {"renew_every": lease / 3}
        return {}

    def __post_init__(self) -> None:
        Settings.__post_init__(self)
        if self.renew_every > self.lease / 3 + 1e-9:  # 0.6 / 3 is a hair below 0.2
            raise InvalidSetting(
                field="renew_every",
                reason=f"is {self.renew_every:g}: must be at most lease / 3 ({self.lease / 3:g})",
            )
        if self.poll_min > self.poll_max:
            raise InvalidSetting(
                field="poll_min",
                reason=f"is {self.poll_min:g}: must be at most poll_max ({self.poll_max:g})",
            )


class WorkerOptions(TypedDict, total=False):
    """The settings that `ol.worker(…)` takes by name, for type checkers."""

    lease: float | None
    renew_every: float | None
    reclaim_every: float | None
    audit_every: float | None
    poll_min: float | None
    poll_max: float | None
    watch_every: float | None
    grace: float | None
    cancel_grace: float | None
    stall_limit: float | None
    live_within: float | None
    memory_floor: int | None
    sources: bool | None
    log_error_messages: bool | None
    log_tracebacks: bool | None


@dataclass(frozen=True, slots=True)
class RetentionSettings(Settings):
    """Retention of ended jobs and records. Dead jobs are kept until an operator acts."""

    keep_succeeded: float = setting(86400.0, "seconds a succeeded job is kept", 0.0)
    keep_cancelled: float = setting(7 * 86400.0, "seconds a cancelled job is kept", 0.0)
    keep_workers: float = setting(3600.0, "seconds a worker without heartbeat stays listed", 1.0)
    keep_incidents: float = setting(
        30 * 86400.0,
        "seconds that records of lost workers, refused writes and wrong tokens are kept",
        0.0,
    )
    archive_after: float = setting(
        86400.0,
        "seconds after which a succeeded job moves to the archive, if keep_succeeded is longer"
        " (PostgreSQL)",
        3600.0,
    )
    prune_every: float = setting(30.0, "seconds between prunings", 0.05)
    prune_batch: int = setting(1000, "jobs pruned in one transaction", 1, 100_000)
    blob_grace: float = setting(
        86400.0,
        "seconds an unreferenced blob is kept; must exceed any caller's transaction",
        0.0,
    )
    blob_sweep_every: float = setting(3600.0, "seconds between sweeps for unreferenced blobs", 0.05)


@dataclass(frozen=True, slots=True)
class ServiceSettings(Settings):
    """Limits of the service for its callers."""

    max_connections: int = setting(
        0, "maximum open connections; 0: derived from the limit of open files", 0
    )
    header_timeout: float = setting(
        10.0, "seconds a client may take to send the head of a request", 0.1, 3600
    )
    max_body: int = setting(2_000_000, "maximum bytes of a request's body", 1_000, 100_000_000)
    max_jobs: int = setting(1000, "maximum jobs enqueued by one request", 1, 10_000)
    max_queues: int = setting(
        1000,
        "maximum queues with unfinished jobs that the tokens of one tenant may use",
        1,
        1_000_000,
    )
    max_page: int = setting(500, "maximum items on one page of a list", 1, 10_000)
    max_wait: float = setting(60.0, "seconds a request may wait for a result", 0.0, 3600)
    max_waiters: int = setting(1000, "maximum requests that wait for results", 1, 100_000)
    waiters_per_token: int = setting(500, "maximum requests of one token that wait for results", 1)
    tenant_share: float = setting(
        0.5,
        "share of each limit on streams and waiters that the tokens of one tenant may use",
        0.001,
        1,
    )
    guesses: int = setting(20, "wrong tokens per minute from one address before it is throttled", 1)
    events_subscribers: int = setting(1000, "maximum open event streams of one process", 1, 100_000)
    events_per_token: int = setting(100, "maximum open event streams of one token", 1)
    events_buffer: int = setting(
        1000, "maximum buffered events of one subscriber; beyond, it reads them from the store", 1
    )
    events_buffer_bytes: int = setting(
        1_000_000, "maximum buffered bytes of one subscriber", 10_000, 1_000_000_000
    )
    events_stall: float = setting(
        10.0, "seconds a subscriber may read nothing before its stream is closed", 0.05, 3600
    )
    events_keep_alive: float = setting(
        15.0, "seconds of silence after which an event stream sends a keep-alive", 0.05, 3600
    )
    events_life: float = setting(3600.0, "maximum seconds of one event stream", 0.05, 86400)
    events_retry: float = setting(2.0, "seconds a browser waits before it reconnects", 0.0, 3600)
    events_poll: float = setting(
        0.25,
        "seconds between polls for events while a stream is open and no notification arrives",
        0.02,
        60,
    )
    session_life: float = setting(8 * 3600.0, "seconds a browser stays logged in", 60.0)
    snapshot_every: float = setting(1.0, "minimum seconds between counts of all jobs", 0.1, 3600)
    open_metrics: bool = setting(
        False, "serve /metrics without a token; else only to tokens that may read everything", 0
    )
    offer_lease: float = setting(
        5.0, "seconds a remote worker has to accept an offered job", 0.2, 3600
    )
    remote_lease: float = setting(
        15.0, "seconds a remote worker's claim is held without being renewed", 0.6, 86400
    )
    max_credit: int = setting(1000, "maximum jobs in flight of one remote worker", 1, 10_000)
    max_streams: int = setting(1000, "maximum open streams of remote workers", 1, 100_000)
    streams_per_token: int = setting(500, "maximum open streams of remote workers of one token", 1)
    keep_alive: float = setting(
        10.0, "seconds of silence after which a remote worker's stream gets a keep-alive", 0.1
    )
    stream_life: float = setting(
        600.0, "seconds after which a remote worker's stream ends and is opened again", 0.05
    )


def _check(name: str, value: object, default: object, rule: Mapping[str, Any]) -> None:
    kind = type(default)
    fits = isinstance(value, int | float) if kind is float else isinstance(value, kind)
    if not fits or (kind is not bool and isinstance(value, bool)):
        raise InvalidSetting(field=name, reason=f"must be of type {kind.__name__}, not {value!r}")
    # Floats are durations: added to the database's clock, they must stay a valid time.
    high = min(rule["high"], MAX_DELAY_S) if kind is float else rule["high"]
    if (not is_finite(value) and kind is not bool) or not rule["low"] <= value <= high:
        top = "" if high == math.inf else f" and at most {high:g}"
        raise InvalidSetting(
            field=name, reason=f"must be at least {rule['low']:g}{top}, not {value!r}"
        )


def _parse(variable: str, text: str, default: Any) -> object:
    if isinstance(default, bool):
        if text.lower() in {"1", "true", "yes", "on"}:
            return True
        if text.lower() in {"0", "false", "no", "off"}:
            return False
        raise InvalidSetting(field=variable, reason=f"must be true or false, not {text!r}")
    try:
        return type(default)(text)
    except ValueError:
        raise InvalidSetting(
            field=variable, reason=f"must be of type {type(default).__name__}, not {text!r}"
        ) from None
