"""Options of one job beside its arguments, validated at the call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict
from uuid import UUID

from .errors import InvalidOption
from .retry import MAX_ATTEMPTS, MAX_DELAY_S, Retry
from .spelling import unknown_option
from .timestamps import check_epoch, is_finite, to_epoch
from .uniqueness import check_uniqueness

if TYPE_CHECKING:
    from .flow import Node
    from .job import Job, NewJob
    from .task import Call, Notifiable

    Prerequisite: TypeAlias = "Job[Any] | Call[Any] | Node | str"
    Hook: TypeAlias = "Call[Any] | Notifiable"

Lane: TypeAlias = Callable[..., str | None]  # called with a job's arguments, by name

MIN_PRIORITY, MAX_PRIORITY = -100, 100
WHEN = ("succeeded", "finished")
WHOLE_OPTIONS = (
    ("priority", MIN_PRIORITY, MAX_PRIORITY),
    ("max_attempts", 1, MAX_ATTEMPTS),
    ("max_crashes", 1, 1000),
)
MAX_NAME_CHARS = 200  # characters of a queue, tenant, task or key


@dataclass(frozen=True, slots=True)
class Options:
    """The options of one job. `None` means the task's value."""

    queue: str | None = None
    priority: int | None = None
    tenant: str | None = None
    lane: str | Lane | None = None  # in a limited queue: a name, or a function of the arguments
    key: str | None = None  # one job per (tenant, queue, key) while its row is kept
    unique: str | float | timedelta | None = None  # or one "waiting" or "active", or one per period
    debounce: float | timedelta | str | None = None  # seconds after the last call of that key
    max_wait: float | timedelta | str | None = None  # maximum seconds after the first such call
    delay: float | timedelta | None = None  # seconds from now, by the database's clock
    at: datetime | None = None  # or a time
    expires: float | timedelta | datetime | None = None  # not started by then: cancelled
    timeout: float | timedelta | None = None  # seconds one attempt may run
    max_attempts: int | None = None
    max_crashes: int | None = None  # maximum number of lost workers per job
    retry: Retry | None = None
    after: Any = None  # prerequisites: jobs, their ids, or calls of the same enqueue
    when: str | None = None  # how they must end: "succeeded" (else it is dead) or "finished"
    flow: str | None = None  # an existing flow, which it joins
    on_success: Any = None  # calls that its success enqueues, in the same transaction
    on_dead: Any = None
    on_cancel: Any = None
    tell: Any = None  # webhooks that are notified of its end

    def __post_init__(self) -> None:
        for name in ("queue", "tenant", "key", "lane"):
            given = getattr(self, name)
            if given is not None and not (name == "lane" and callable(given)):
                check_name(name, given)
        for name, low, high in WHOLE_OPTIONS:
            if (given := getattr(self, name)) is not None:
                check_whole(name, given, low, high)
        seconds("delay", self.delay)
        seconds("timeout", self.timeout, above=0.0)
        if isinstance(self.expires, datetime):
            to_epoch("expires", self.expires)
        else:
            seconds("expires", self.expires, above=0.0)
        to_epoch("at", self.at)
        if self.delay is not None and self.at is not None:
            raise InvalidOption(option="at", reason="cannot be given together with delay")
        if self.retry is not None and not isinstance(self.retry, Retry):
            raise InvalidOption(
                option="retry", reason=f"must be a Retry(…), not {_format_value(self.retry)}"
            )
        if self.when not in (None, *WHEN):
            raise InvalidOption(
                option="when", reason=f"must be one of {', '.join(WHEN)}, not {self.when!r}"
            )
        _check_flow(self.flow)
        check_uniqueness(self)

    @classmethod
    def of(
        cls,
        given: Mapping[str, object] | JobOptions,
        also: Sequence[str] = (),
        owner: str = "A job",
    ) -> Options:
        """Options by name; an unknown name is refused, with the known ones listed. `also`: further
        options of the caller; `owner`: the public name of the caller."""
        known = [field.name for field in fields(cls)]
        for name in given:
            if name not in known:
                raise unknown_option(name, sorted([*known, *also]), owner)
        return cls(**given)

    def over(self, other: Options) -> Options:
        """These options where they are given, otherwise the other ones."""
        merged = {
            f.name: _first(getattr(self, f.name), getattr(other, f.name)) for f in fields(self)
        }
        if self.delay is not None:
            merged["at"] = None
        if self.at is not None:
            merged["delay"] = None
        return Options(**merged)


class TaskOptions(TypedDict, total=False):
    """The options of `@ol.task(…)`, for type checkers; `Options` documents them."""

    queue: str | None
    lane: str | Lane | None
    priority: int | None
    tenant: str | None
    expires: float | timedelta | datetime | None
    timeout: float | timedelta | None
    max_attempts: int | None
    max_crashes: int | None
    when: Literal["succeeded", "finished"] | None
    on_success: Hook | Iterable[Hook] | None
    on_dead: Hook | Iterable[Hook] | None
    on_cancel: Hook | Iterable[Hook] | None
    tell: Notifiable | Iterable[Notifiable] | None


class JobOptions(TaskOptions, total=False):
    """The options of `task.using(…)`: those of a task, and those of a single job."""

    key: str | None
    unique: Literal["waiting", "active"] | str | float | timedelta | None
    debounce: float | timedelta | str | None
    max_wait: float | timedelta | str | None
    delay: float | timedelta | None
    at: datetime | None
    retry: Retry | None
    after: Prerequisite | Iterable[Prerequisite] | None
    flow: str | None


def seconds(name: str, value: Any, above: float | None = None) -> float | None:
    """A duration in seconds; raises if it is invalid."""
    if value is None:
        return None
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if not is_finite(value) or not 0 <= value <= MAX_DELAY_S:
        raise InvalidOption(
            option=name,
            reason=f"must be a duration of 0 seconds to ten years, not {_format_value(value)}",
        )
    if above is not None and value <= above:
        raise InvalidOption(option=name, reason=f"must be more than {above:g} s, not {value!r}")
    return float(value)


def check_times(job: NewJob) -> None:
    """Refuse a job from another process whose times or durations are out of bounds."""
    for name in ("delay", "expires_in"):
        seconds(name, getattr(job, name))
    seconds("timeout", job.timeout, above=0.0)
    check_epoch("at", job.at)
    check_epoch("expires_at", job.expires_at)


def check_name(name: str, value: object) -> str:
    """A queue, tenant or task name that both databases can hold."""
    if not isinstance(value, str) or not value or len(value) > MAX_NAME_CHARS:
        raise InvalidOption(
            option=name,
            reason=f"must be 1 to {MAX_NAME_CHARS} characters of text, not {value!r:.80}",
        )
    if name == "queue" and value.startswith("!"):
        raise InvalidOption(option=name, reason=f"must not start with '!': {value!r:.80}")
    if not value.isprintable():
        raise InvalidOption(option=name, reason=f"has unprintable characters: {value!r:.80}")
    return value


def _check_flow(flow: object) -> None:
    try:
        if flow is not None:
            UUID(str(flow))
    except ValueError:
        raise InvalidOption(
            option="flow", reason=f"must be a flow's id, not {flow!r:.80}"
        ) from None


def check_whole(name: str, value: object, low: int, high: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise InvalidOption(
            option=name,
            reason=f"must be a whole number from {low} to {high}, not {_format_value(value)}",
        )


def _format_value(value: object) -> str:
    """A value in a message; Python refuses to print an int of thousands of digits."""
    try:
        return f"{value!r:.80}"
    except ValueError:
        return "an integer of thousands of digits"


def _first(mine: object, other: object) -> Any:
    return other if mine is None else mine
