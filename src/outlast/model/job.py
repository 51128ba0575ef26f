"""What a job is: as it is asked for, as it is claimed, and as it is read.

`NewJob` goes into the database, `Claim` comes out to the worker that took it, `Job` is what callers
see. All three are values: none of them talks to a database.
"""

from __future__ import annotations

import json
from dataclasses import MISSING, dataclass, field, fields
from datetime import datetime
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, NamedTuple

from .blob import REFERENCE_PREFIX, Blob, blob_of_value, parse_reference
from .lifecycle import STATES, State
from .safe_text import MESSAGE_LIMIT, storable_text
from .secret import MARK as SECRET_MARK
from .secret import MASK, masked_args
from .timestamps import EARLIEST, LATEST, to_datetime
from .unreadable import Repair

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # the one of Python 3.13, which may have a default

    R = TypeVar("R", covariant=True, default=Any)  # noqa: PLC0105
else:
    from typing import TypeVar

    R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class NewFlow:
    """A flow that is to be inserted; or a part of one whose jobs fail together."""

    id: str
    name: str | None = None
    part_of: str | None = None
    fail_after: int | None = None  # so many failures have the rest of it cancelled
    tenant: str | None = None  # of a flow with a key: one flow per (tenant, key)
    key: str | None = None
    shape: str | None = None  # digest of its jobs, to tell another flow under the same key

    def row(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(slots=True)  # frozen, it would take longer to make than all else that is done to it
class NewJob:
    """A job that is to be inserted. Times are spans: the database adds its own clock."""

    id: str
    tenant: str
    queue: str
    task: str
    args: str  # JSON text
    priority: int
    max_attempts: int
    max_crashes: int
    lane: str | None = None  # None: as its queue says
    key: str | None = None
    delay: float | None = None
    at: float | None = None
    expires_in: float | None = None
    expires_at: float | None = None
    timeout: float | None = None
    retry: str | None = None  # JSON text, only where the caller said other than the task
    trace: str | None = None
    flow: str | None = None
    team: str | None = None  # the part of a flow whose jobs fail together
    needs: str = "succeeded"  # how those that it waits for must have ended: so, or just "finished"
    waits_for: int = 0  # how many of them
    quorum: int | None = None  # how many of all, where not all are needed
    tied: bool = False  # its end concerns others: followers, hooks, a team
    hooks: str | None = None  # JSON text: the jobs to be made when it ends, by how it ends
    unique_mode: str | None = None  # how its key is unique; None: as long as its row is kept
    after: tuple[str, ...] = ()  # those that it waits for, in the order given
    sibling_of: str | None = None  # whoever waits for that job waits for this one too
    new_flows: tuple[NewFlow, ...] = ()  # flows that come to be with it
    unit: str | None = None  # group, chain or flow of this call that it is a member of
    unique_span: float | None = None  # seconds of the period, or of the debounce
    max_wait: float | None = None  # seconds that calls of a debounced key may put it off

    def row(self) -> dict[str, Any]:
        """What is said of it; what is not is as ever."""
        columns = zip(NEW_JOB_COLUMNS, _values(self), _DEFAULTS, strict=True)
        return {name: value for name, value, default in columns if value != default}

    def __post_init__(self) -> None:
        if self.at is not None and self.delay is not None:
            raise ValueError("a job has a delay or a moment, not both")


_NO_COLUMNS = {"after", "sibling_of", "new_flows", "unit", "unique_span", "max_wait"}
_COLUMNS = [spec for spec in fields(NewJob) if spec.name not in _NO_COLUMNS]
NEW_JOB_COLUMNS = tuple(spec.name for spec in _COLUMNS)
_DEFAULTS = [None if spec.default is MISSING else spec.default for spec in _COLUMNS]
_values = attrgetter(*NEW_JOB_COLUMNS)


ATTEMPT_LIMIT = 2**31 - 1  # the largest number that its column holds
FENCE_LIMIT = 2**63 - 1
# A claim by its job's id, its fence and its owner. In one history of a database a fence has one
# owner; after a failover that lost commits, or in a restored backup, another may get the same one.
ClaimKey = tuple[str, int, str]


class Claim(NamedTuple):
    """A job in the hands of one worker: the row's facts and the fence that proves the hold."""

    id: str
    fence: int
    task: str
    args: str
    attempt: int
    failures: int
    crashes: int
    max_attempts: int
    max_crashes: int
    queue: str
    tenant: str
    priority: int
    run_at: float
    started_at: float
    created_at: float
    timeout: float | None
    retry: str | None
    trace: str | None
    key: str | None
    worker: str
    flow: str | None = None
    has_dependents: bool = False  # its end concerns others
    has_hooks: bool = False  # jobs are to be made when it ends
    lane: str | None = None
    offered_by: str | None = None  # the server that owns it until its remote worker accepts it

    @property
    def claim_key(self) -> ClaimKey:
        return self.id, self.fence, self.worker

    @property
    def guard(self) -> dict[str, Any]:
        """The columns that a write under this claim is compared by, beside the job's id."""
        guard = {"fence": self.fence, "worker": self.worker}
        return guard if self.offered_by is None else {**guard, "offered_by": self.offered_by}

    def owned_by(self, worker: str | None) -> bool:
        """Whether that owner of its row is this claim's."""
        return worker is not None and worker in (self.worker, self.offered_by)

    @property
    def at_limit(self) -> bool:
        """A counter of the row cannot grow any more: the next claim could not be told from this
        one. Such a job is ended, and not run."""
        return self.fence >= FENCE_LIMIT or self.attempt >= ATTEMPT_LIMIT

    @property
    def one_crash_left(self) -> bool:
        """One more lost worker would end it. Such jobs share a process with no other of their
        kind: the next crash then tells the poison from its innocent neighbours. A first crash
        tells nothing (hosts die, processes are replaced), so it keeps nobody waiting."""
        return self.crashes > 0 and self.crashes + 1 >= self.max_crashes


# Those that a claim returns, in the order of the fields.
CLAIM_COLUMNS = tuple(name for name in Claim._fields if name != "offered_by")


@dataclass(slots=True)  # not frozen, as `NewJob` is not: they come in crowds
class Job(Generic[R]):
    """One call of a task, as it stood when it was read. `Job[int]`: of a task that returns an int,
    which is what `ol.result(job)` gives; the attribute `result` has the JSON that is stored."""

    id: str
    task: str
    queue: str
    state: State
    attempt: int
    args: Any
    result: Any
    error: dict[str, Any] | None
    run_at: datetime
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    worker: str | None
    tenant: str
    priority: int = 0
    key: str | None = None
    failures: int = 0
    crashes: int = 0
    max_attempts: int = 1
    max_crashes: int = 1
    fence: int = 0
    lease_until: datetime | None = None
    expires_at: datetime | None = None
    timeout: float | None = None
    cancelling: bool = False
    trace: str | None = field(default=None, repr=False)
    flow: str | None = None
    waits_for: int = 0  # jobs that it comes after and that have not ended
    lane: str | None = None  # the group in a limited queue whose limits it shares
    unreadable: str | None = None  # what in its row cannot be read, if anything

    @property
    def final(self) -> bool:
        return self.state.final

    @property
    def forgotten(self) -> bool:
        """What it was given, gave and said was erased; no call is stored so."""
        return self.args is None

    def as_json(self) -> dict[str, Any]:
        """The job as JSON values, the same on every path that prints or sends one."""
        return {name: _json_value(getattr(self, name)) for name in self.__slots__}


# Those that are read from its row, in the order of the fields.
JOB_COLUMNS = tuple(spec.name for spec in fields(Job) if spec.name != "unreadable")
TIMESTAMPS = {"run_at", "created_at", "started_at", "finished_at", "lease_until", "expires_at"}


_INTEGERS = ("attempt", "priority", "failures", "crashes", "max_attempts", "max_crashes", "fence",
          "waits_for")  # fmt: skip
UNREADABLE_ERROR = "Unreadable"  # the type of an error that is stored as no JSON object
_REQUIRED = {"id", "task", "queue", "tenant", "run_at", "created_at"}


def read_job(row: Any) -> Job:
    """A job from a row whose columns stand in the order of `JOB_COLUMNS`. It never raises: what
    cannot be read is named in `unreadable`."""
    facts = dict(zip(JOB_COLUMNS, row, strict=True))
    state = STATES.get(facts["state"])
    if state is None or not _is_valid(facts):
        return _read_damaged(facts)
    facts["state"] = state
    facts["cancelling"] = bool(facts["cancelling"])
    for name in TIMESTAMPS:
        facts[name] = to_datetime(facts[name])
    return _with_values(facts)


def _is_valid(facts: dict[str, Any]) -> bool:
    """Whether numbers, names and moments are what they should be; one look for each kind."""
    try:
        return (
            sum(map(facts.__getitem__, _INTEGERS)).__class__ is int
            and all(at is None or EARLIEST <= at < LATEST for at in map(facts.get, TIMESTAMPS))
            and facts["run_at"] is not None
            and facts["created_at"] is not None
            and isinstance(facts["timeout"] or 0.0, int | float)
            and "".join(map(facts.__getitem__, ("id", "task", "queue", "tenant"))) != ""
        )
    except TypeError:
        return False


def _read_damaged(facts: dict[str, Any]) -> Job:
    repair = Repair()
    facts["state"] = repair.state(facts["state"])
    facts["cancelling"] = bool(facts["cancelling"])
    for name in _INTEGERS:
        facts[name] = repair.whole(name, facts[name])
    for name in sorted(TIMESTAMPS):
        facts[name] = repair.moment(name, facts[name], name in _REQUIRED)
    for name in ("id", "task", "queue", "tenant", "worker", "key", "trace", "flow", "lane"):
        facts[name] = repair.text(name, facts[name], name in _REQUIRED)
    if not isinstance(facts["timeout"] or 0.0, int | float):
        repair.problems.append("timeout is no number")
        facts["timeout"] = None
    return _with_values(facts, repair.reason())


def _with_values(facts: dict[str, Any], reason: str | None = None) -> Job:
    """With arguments, result and error as values. Each is any JSON, and text where it is none."""
    texts = facts["args"], facts["result"], facts["error"]
    facts["args"] = args = read_args(texts[0])
    facts["result"] = result = read_result(texts[1])
    facts["error"] = read_error(texts[2])
    problems = [] if reason is None else [reason]
    if not (args.__class__ is dict or args is None or isinstance(args, Blob)):
        problems.append("args are no JSON object")
    if result is not None and result is texts[1]:
        problems.append("result is no JSON")
    if facts["error"] is not None and facts["error"].get("type") == UNREADABLE_ERROR:
        problems.append("error is no JSON object")
    return Job(**facts, unreadable="; ".join(problems) or None)


def lenient_json(text: str | None) -> Any:
    """JSON text as a value; text that is no JSON as it is, because reading must not fail."""
    if text is None:
        return None
    from pydantic_core import from_json  # several times as fast; not needed to get here

    try:
        return from_json(text)
    except ValueError:
        return _more_lenient_json(text)


def _more_lenient_json(text: str) -> Any:
    """What is very deep, or has half a character in it, is JSON to Python alone. No page and no
    answer can be written with half a character: it is shown as a question mark."""
    try:
        value = json.loads(text)
        whole = json.dumps(value, ensure_ascii=False)
        return value if whole.isascii() else json.loads(whole.encode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return text


def read_args(text: str) -> Any:
    """A job's arguments as they may be shown; a `Blob` where they are kept by reference."""
    args = masked_args(lenient_json(text))
    if args.__class__ is str and SECRET_MARK in args:
        return MASK  # no JSON, so nobody can tell which part of it is the secret
    return args if args.__class__ is dict else blob_of_value(args) or args  # no call, for the many


def read_error(text: str | None) -> dict[str, Any] | None:
    """What is stored of an error; one of the same form where it is no JSON object."""
    error = lenient_json(text)
    if error is None or error.__class__ is dict:
        return error
    shown = storable_text(str(text), MESSAGE_LIMIT)
    return {"type": UNREADABLE_ERROR, "message": shown, "traceback": ""}


def read_result(text: str | None) -> Any:
    """A job's result; a `Blob` where it is kept by reference."""
    if (
        isinstance(text, str)
        and text.startswith(REFERENCE_PREFIX)
        and (blob := parse_reference(text)) is not None
    ):
        return blob
    return lenient_json(text)


def _json_value(value: Any) -> Any:
    if isinstance(value, Blob):
        return value.as_json()
    return value.isoformat() if isinstance(value, datetime) else value
