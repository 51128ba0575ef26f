"""Circuit breaker: which failures count as an outage, and when to probe. Pure decisions.

           N connection errors in a row, of different jobs;
           a whole batch; DependencyDown
    closed ──────────────────────────────────────────▶ open ──▶ one probe at a time, with back-off
       ▲                                                 │        │ fails: refunded, wait longer
       └── a probe succeeds, or an operator; no job is left ◀─────┘

A circuit is one task in one queue. While it is open, its jobs stay ready and spend no attempt.
"""

from __future__ import annotations

import errno
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import NamedTuple, Self

from .errors import DependencyDown, InvalidOption
from .spelling import refuse_unknown

MAX_FAILURES = 10_000
MAX_PROBE_WAIT_S = 86_400.0
CHAIN_LIMIT = 20  # links of an error's cause chain that are inspected
RELAPSE_S = 60.0  # seconds after a close in which an inferred outage counts as its jobs' failures

# An OSError with one of these numbers is a lost connection.
UNREACHABLE = frozenset(
    {errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN, errno.ENETRESET}
)


class Outage(StrEnum):
    """The certainty that a failure is the dependency's and not the job's."""

    CERTAIN = "certain"  # the handler raised DependencyDown, or every call of a batch failed
    SUSPECTED = "suspected"  # one connection error


class CloseReason(StrEnum):
    """Why a breaker closed, as shown in the event and the log."""

    PROBE = "a probe succeeded"
    OPERATOR = "by hand"
    NO_JOB = "no job left to probe with"


class Circuit(NamedTuple):
    """The task and queue that one breaker protects."""

    queue: str
    task: str


@dataclass(frozen=True, slots=True)
class Breaker:
    """When a task's calls stop, and how they resume: `@ol.task(breaker=Breaker(failures=3))`.

    `failures` errors in a row that are one of `kinds` (or were raised from one), each of a
    different job, open it; any success in between resets the count. The first probe is made
    `probe_first` seconds later, each further one after twice as long, at most `probe_cap`.
    """

    failures: int = 5
    kinds: tuple[type[BaseException], ...] = (ConnectionError, TimeoutError)
    probe_first: float = 1.0
    probe_cap: float = 30.0

    def __new__(cls, *args: object, **given: object) -> Self:
        refuse_unknown("Breaker", given, cls.__slots__)
        return object.__new__(cls)

    def __post_init__(self) -> None:
        whole = isinstance(self.failures, int) and not isinstance(self.failures, bool)
        if not whole or not 1 <= self.failures <= MAX_FAILURES:
            raise _invalid("failures", f"a whole number from 1 to {MAX_FAILURES}", self.failures)
        errors = isinstance(self.kinds, tuple) and all(map(_is_error, self.kinds))
        if not errors or not self.kinds:
            raise _invalid("kinds", "a tuple of exception types, at least one", self.kinds)
        most = f"{MAX_PROBE_WAIT_S:.0f}"
        if not _is_span(self.probe_first):
            wanted = f"a number of seconds above 0, at most {most}"
            raise _invalid("probe_first", wanted, self.probe_first)
        if not _is_span(self.probe_cap) or self.probe_cap < self.probe_first:
            wanted = f"a number of seconds from probe_first to {most}"
            raise _invalid("probe_cap", wanted, self.probe_cap)

    def __repr__(self) -> str:
        """Only the fields that differ from the defaults."""
        defaults = {one.name: one.default for one in fields(self)}
        given = {name: getattr(self, name) for name in defaults}
        changed = [f"{n}={_format_value(v)}" for n, v in given.items() if v != defaults[n]]
        return f"Breaker({', '.join(changed)})"

    def wait(self, probes: int, jitter: float) -> float:
        """Seconds until the next probe after `probes` failed ones; `jitter` in [0, 1) makes it up
        to 20 % sooner."""
        exact = min(self.probe_cap, self.probe_first * 2.0 ** min(max(probes, 0), 60))
        return exact * (1.0 - 0.2 * jitter)


def outage_of(error: BaseException, breaker: Breaker | None) -> Outage | None:
    """Whether an error means that the task's dependency is unavailable."""
    if isinstance(error, DependencyDown):
        return Outage.CERTAIN
    if breaker is None:
        return None
    found = any(_is_of(one, breaker.kinds) for one in _chain(error))
    return Outage.SUSPECTED if found else None


def _is_of(error: BaseException, kinds: tuple[type[BaseException], ...]) -> bool:
    if isinstance(error, kinds):
        return True
    if not isinstance(error, OSError) or ConnectionError not in kinds:
        return False
    return error.errno in UNREACHABLE or type(error).__name__ == "gaierror"  # no such name


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and its causes, as a traceback shows them. Broker clients wrap the socket's
    error."""
    one: BaseException | None = error
    for _ in range(CHAIN_LIMIT):
        if one is None:
            return
        yield one
        one = one.__cause__ or (None if one.__suppress_context__ else one.__context__)


@dataclass(slots=True)
class FailureStreak:
    """Suspected failures of one circuit since its last success, by different jobs."""

    jobs: set[str] = field(default_factory=set)

    def failed(self, job: str) -> int:
        """Count a failure; a job that fails repeatedly counts once and dies of its own budget."""
        self.jobs.add(job)
        return len(self.jobs)


@dataclass(frozen=True, slots=True)
class OpenBreaker:
    """An open breaker as read from the database."""

    circuit: Circuit
    opening: str  # the id of this opening; a later opening has another
    kind: str = ""  # the type of the error that opened it
    opened_at: float = math.inf  # by the database's clock; infinite: not written yet
    probes: int = 0  # probes made so far
    due: bool = False  # a probe may be made now

    def precedes(self, started_at: float) -> bool:
        """Whether an attempt began after the breaker opened: only such an attempt shows whether the
        dependency has recovered."""
        return started_at > self.opened_at


def _format_value(value: object) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(kind.__name__ for kind in value)},)"
    return repr(value)


def _is_error(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseException)


def _is_span(value: object) -> bool:
    numeric = isinstance(value, int | float) and not isinstance(value, bool)
    return numeric and 0 < value <= MAX_PROBE_WAIT_S  # type: ignore[operator]


def _invalid(name: str, wanted: str, value: object) -> InvalidOption:
    return InvalidOption(option=f"breaker.{name}", reason=f"must be {wanted}, not {value!r:.80}")
