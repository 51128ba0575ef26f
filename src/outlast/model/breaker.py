"""Circuit breaker: what counts as an outage, and when it is probed. Decisions only.

           N connection errors in a row, of different jobs;
           a whole batch; DependencyDown
    closed ──────────────────────────────────────────▶ open ──▶ one probe at a time, with back-off
       ▲                                                 │        │ fails: refunded, wait longer
       └── a probe succeeds, or an operator; no job is left ◀─────┘

A circuit is one task in one queue. While it is open its jobs stay ready and unspent.
"""

from __future__ import annotations

import errno
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import NamedTuple

from .errors import DependencyDown, InvalidOption

MAX_FAILURES = 10_000
MAX_PROBE_WAIT_S = 86_400.0
CHAIN_LIMIT = 20  # causes of an error that are looked at
RELAPSE_S = 60.0  # seconds after a close in which an inferred outage is charged to its jobs

# A plain OSError stands for a lost connection if it says so by one of these.
UNREACHABLE = frozenset(
    {errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN, errno.ENETRESET}
)


class Outage(StrEnum):
    """How sure it is that a failure is the dependency's and not the job's."""

    CERTAIN = "certain"  # the handler says so, or no call of a whole batch got through
    SUSPECTED = "suspected"  # one connection error


class CloseReason(StrEnum):
    """Why a breaker was closed, as the event and the log say it."""

    PROBE = "a probe succeeded"
    OPERATOR = "by hand"
    NO_JOB = "no job left to probe with"


class Circuit(NamedTuple):
    """What one breaker stands for."""

    queue: str
    task: str


@dataclass(frozen=True, slots=True)
class Breaker:
    """When a task's calls stop, and how they resume: `@ol.task(breaker=Breaker(failures=3))`.

    `failures` errors in a row that are one of `kinds` (or were raised from one), each of another
    job, open it; any success between them starts the count again. The first probe is made
    `probe_first` seconds later, each further one after twice as long, at most `probe_cap`.
    """

    failures: int = 5
    kinds: tuple[type[BaseException], ...] = (ConnectionError, TimeoutError)
    probe_first: float = 1.0
    probe_cap: float = 30.0

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
        """What is not as by default."""
        defaults = {one.name: one.default for one in fields(self)}
        given = {name: getattr(self, name) for name in defaults}
        changed = [f"{n}={_format_value(v)}" for n, v in given.items() if v != defaults[n]]
        return f"Breaker({', '.join(changed)})"

    def wait(self, probes: int, jitter: float) -> float:
        """Seconds until the next probe after so many failed ones; `luck` in [0, 1) is the jitter,
        up to 20 % sooner."""
        exact = min(self.probe_cap, self.probe_first * 2.0 ** min(max(probes, 0), 60))
        return exact * (1.0 - 0.2 * jitter)


def outage_of(error: BaseException, breaker: Breaker | None) -> Outage | None:
    """Whether an error means that what the task depends on is away."""
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
    """The error and those it was raised from, as a traceback shows them. Broker clients wrap the
    socket's error in one of their own."""
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
        """One job that fails again and again counts once: it is dead by its own budget."""
        self.jobs.add(job)
        return len(self.jobs)


@dataclass(frozen=True, slots=True)
class OpenBreaker:
    """A breaker that is open, as the database has it."""

    circuit: Circuit
    opening: str  # the id of this opening: a later one has another
    kind: str = ""  # the type of the error that opened it
    opened_at: float = math.inf  # by the database's clock; infinite: not written yet
    probes: int = 0  # that have been made
    due: bool = False  # a probe may be made now

    def precedes(self, started_at: float) -> bool:
        """Whether an attempt began after the breaker opened: only such a one tells whether the
        dependency is back."""
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
