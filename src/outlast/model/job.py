"""Jobs as values: `NewJob` is inserted into the database, `Job` is what callers read.

The worker that runs a job has a `Claim` (claim.py) instead.
"""

from __future__ import annotations

import json
from dataclasses import MISSING, dataclass, field, fields
from datetime import datetime
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic

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
    """A flow to insert, or a part of one whose jobs fail together."""

    id: str
    name: str | None = None
    part_of: str | None = None
    fail_after: int | None = None  # this many failures cancel the remaining jobs
    tenant: str | None = None  # with a key: one flow per (tenant, key)
    key: str | None = None
    shape: str | None = None  # digest of its jobs, to detect another flow under the same key

    def row(self) -> dict[str, object]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(slots=True)  # not frozen: that would dominate the cost of an enqueue
class NewJob:
    """A job to insert. Times are durations: the database adds its own clock."""

    id: str
    tenant: str
    queue: str
    task: str
    args: str  # JSON text
    priority: int
    max_attempts: int
    max_crashes: int
    lane: str | None = None  # None: the queue decides
    key: str | None = None
    delay: float | None = None
    at: float | None = None
    expires_in: float | None = None
    expires_at: float | None = None
    timeout: float | None = None
    retry: str | None = None  # JSON text, only if the call overrides the task's
    trace: str | None = None
    flow: str | None = None
    team: str | None = None  # the part of a flow whose jobs fail together
    needs: str = "succeeded"  # how its prerequisites must end: so, or in any way ("finished")
    waits_for: int = 0  # number of unfinished prerequisites
    quorum: int | None = None  # number of prerequisites needed, if not all
    tied: bool = False  # others depend on its end: dependents, hooks, a fail-together group
    hooks: str | None = None  # JSON text: the jobs that its end enqueues, by final state
    unique_mode: str | None = None  # scope of its unique key; None: as long as its row is kept
    after: tuple[str, ...] = ()  # prerequisites, in the order given
    sibling_of: str | None = None  # dependents of that job wait for this one, too
    new_flows: tuple[NewFlow, ...] = ()  # flows inserted with it
    unit: str | None = None  # group, chain or flow of the call that it belongs to
    unique_span: float | None = None  # seconds: the period, or the debounce delay
    max_wait: float | None = None  # seconds that debounced calls may postpone it

    def row(self) -> dict[str, object]:
        """The columns whose value is not the default."""
        columns = zip(NEW_JOB_COLUMNS, _values(self), _DEFAULTS, strict=True)
        return {name: value for name, value, default in columns if value != default}

    def params(self) -> dict[str, object]:
        """The columns of a job that is ready and in no flow, as parameters."""
        return dict(zip(PLAIN_JOB_COLUMNS, _plain_values(self), strict=True))

    @property
    def is_plain(self) -> bool:
        """Whether the job is ready as soon as it is inserted, and in no flow."""
        return (
            self.delay is None
            and self.at is None
            and self.expires_in is None
            and self.expires_at is None
            and self.flow is None
            and not self.after
            and self.sibling_of is None
            and self.unique_mode is None
            and not self.waits_for
        )

    def __post_init__(self) -> None:
        if self.at is not None and self.delay is not None:
            raise ValueError("a job has a delay or a time, not both")


_NO_COLUMNS = {"after", "sibling_of", "new_flows", "unit", "unique_span", "max_wait"}
_COLUMNS = [spec for spec in fields(NewJob) if spec.name not in _NO_COLUMNS]
NEW_JOB_COLUMNS = tuple(spec.name for spec in _COLUMNS)
_DEFAULTS = [None if spec.default is MISSING else spec.default for spec in _COLUMNS]
_values = attrgetter(*NEW_JOB_COLUMNS)
PLAIN_JOB_COLUMNS = (
    "id", "tenant", "queue", "lane", "task", "args", "priority", "max_attempts", "max_crashes",
    "timeout", "retry", "key", "trace", "tied", "hooks",
)  # fmt: skip
_plain_values = attrgetter(*PLAIN_JOB_COLUMNS)


@dataclass(slots=True)  # not frozen, like `NewJob`: lists of them are long
class Job(Generic[R]):
    """One call of a task, as of the moment when it was read. `Job[int]` is a job of a task that
    returns an int: `ol.result(job)` returns that, the attribute `result` has the stored JSON."""

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
    waits_for: int = 0  # number of unfinished prerequisites
    lane: str | None = None  # the group of jobs in a limited queue that share a limit
    unreadable: str | None = None  # the unreadable columns of its row, if any

    @property
    def final(self) -> bool:
        return self.state.final

    @property
    def forgotten(self) -> bool:
        """Arguments, result and events were erased; no stored call has `None` as arguments."""
        return self.args is None

    def as_json(self) -> dict[str, Any]:
        """The job as JSON values, the same for every surface that prints or sends it."""
        return {name: _json_value(getattr(self, name)) for name in self.__slots__}


# The columns to read, in the order of the fields.
JOB_COLUMNS = tuple(spec.name for spec in fields(Job) if spec.name != "unreadable")
TIMESTAMPS = {"run_at", "created_at", "started_at", "finished_at", "lease_until", "expires_at"}


_INTEGERS = ("attempt", "priority", "failures", "crashes", "max_attempts", "max_crashes", "fence",
          "waits_for")  # fmt: skip
UNREADABLE_ERROR = "Unreadable"  # the type of a stored error that is not a JSON object
_REQUIRED = {"id", "task", "queue", "tenant", "run_at", "created_at"}


def read_job(row: Any) -> Job:
    """A job from a row with columns in the order of `JOB_COLUMNS`. Never raises: `unreadable`
    names the columns that cannot be read."""
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
    """Whether numbers, names and times are valid, with one check per kind."""
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


def _read_damaged(facts: dict[str, object]) -> Job:
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
        repair.problems.append("timeout is not a number")
        facts["timeout"] = None
    return _with_values(facts, repair.reason())


def _with_values(facts: dict[str, Any], reason: str | None = None) -> Job:
    """Parse arguments, result and error; text that is not JSON stays text."""
    texts = facts["args"], facts["result"], facts["error"]
    facts["args"] = args = read_args(texts[0])
    facts["result"] = result = read_result(texts[1])
    facts["error"] = read_error(texts[2])
    problems = [] if reason is None else [reason]
    if not (args.__class__ is dict or args is None or isinstance(args, Blob)):
        problems.append("args are not a JSON object")
    if result is not None and result is texts[1]:
        problems.append("result is not JSON")
    if facts["error"] is not None and facts["error"].get("type") == UNREADABLE_ERROR:
        problems.append("error is not a JSON object")
    return Job(**facts, unreadable="; ".join(problems) or None)


def lenient_json(text: str | None) -> Any:
    """Parse JSON text; other text is returned as it is, because reading must not fail."""
    if text is None:
        return None
    from pydantic_core import from_json  # several times as fast; not needed to get here

    try:
        return from_json(text)
    except ValueError:
        return _more_lenient_json(text)


def _more_lenient_json(text: str) -> object:
    """Parse what only Python's parser accepts: deep nesting and lone surrogates. No page or
    response can encode a lone surrogate: it becomes a question mark."""
    try:
        value = json.loads(text)
        whole = json.dumps(value, ensure_ascii=False)
        return value if whole.isascii() else json.loads(whole.encode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return text


def read_args(text: str) -> Any:
    """A job's arguments with secrets masked; a `Blob` if they are stored by reference."""
    args = masked_args(lenient_json(text))
    if args.__class__ is str and SECRET_MARK in args:
        return MASK  # not JSON, so secrets cannot be told apart
    return args if args.__class__ is dict else blob_of_value(args) or args  # dict: no call


def read_error(text: str | None) -> dict[str, object] | None:
    """The stored error; a record of the same shape if the text is not a JSON object."""
    error = lenient_json(text)
    if error is None or error.__class__ is dict:
        return error
    shown = storable_text(str(text), MESSAGE_LIMIT)
    return {"type": UNREADABLE_ERROR, "message": shown, "traceback": ""}


def read_result(text: str | None) -> Any:
    """A job's result; a `Blob` if it is stored by reference."""
    if (
        isinstance(text, str)
        and text.startswith(REFERENCE_PREFIX)
        and (blob := parse_reference(text)) is not None
    ):
        return blob
    return lenient_json(text)


def _json_value(value: object) -> object:
    if isinstance(value, Blob):
        return value.as_json()
    return value.isoformat() if isinstance(value, datetime) else value
