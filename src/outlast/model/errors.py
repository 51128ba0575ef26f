"""All errors of Outlast, as one tree.

    OutlastError
    ├── InvalidInput              the input is invalid (also a ValueError)
    │   ├── InvalidArguments      a call's arguments do not fit its task; names every problem
    │   ├── InvalidResult         a handler's return value cannot be stored; names every problem
    │   ├── InvalidFlow           jobs that cannot be enqueued together; names every problem
    │   ├── InvalidSignal         a signal that its job does not take; names every problem
    │   ├── InvalidOption         an option (priority, delay, queue, …) is unknown or out of range
    │   ├── InvalidSetting        a setting is out of range or unknown; names the field
    │   ├── TenantRequired        a job must name its tenant here, and does not
    │   └── UnknownTenant         none of several databases has this tenant
    ├── KeyConflict               the same idempotency key was used with another call
    ├── QueueFull                 the bounded queue has no room; nothing was enqueued
    ├── QuotaExceeded             the queue or lane has admitted as many jobs as it may for now
    ├── UnknownTask               no task of that name is registered here
    ├── JobNotFound               no such job
    ├── TooLate                   the job already ended another way
    ├── TooEarly                  the job has not ended yet
    ├── FlowNotFound              no such flow
    ├── FlowClosed                the flow was cancelled or has ended: no job can join it
    ├── PrerequisiteFailed        the job would wait for one that did not succeed
    ├── TokenNotFound             no such token
    ├── LinkRefused               the one-time link is unknown, used, revoked or expired
    ├── WorkerNotFound            no such worker
    ├── ScheduleNotFound          no such schedule
    ├── ScheduleExists            there is a schedule of that name already
    ├── ClaimLost                 this attempt no longer owns its job; its write changed nothing
    ├── JobFailed                 the awaited job ended without a result
    │   ├── JobDead
    │   └── JobCancelled
    ├── ResultTimeout             the awaited job has not ended yet
    ├── SignalTimeout             the signal, or the end of the job, did not come in time
    ├── ResultMismatch            the stored result is not of the type that its task returns
    ├── Erased                    the result was read and erased, or forgotten
    ├── BlobError                 a payload that is stored by reference cannot be read
    │   ├── BlobUnavailable       the blob store cannot be reached
    │   ├── BlobLost              the blob is missing, or not what was stored
    │   └── NoBlobStore           this process has no blob store
    ├── ServerRefused             a server does not accept this worker
    ├── WebhookRefused            a webhook message is not authentic, or not recent
    └── StoreError                the database refused a statement
        ├── StoreUnavailable      no connection, or it was lost
        │   └── ServerUnavailable the same, of a remote worker's server
        ├── StoreBusy             another connection held a lock for too long
        ├── Contention            two transactions conflicted
        ├── DeadlineExceeded      no response in time; the connection was closed
        ├── WrongConnection       the caller's connection cannot carry this job
        ├── Unsupported           this database lacks the feature
        ├── NoDatabase            there is no Outlast database at that address
        ├── CorruptDatabase       the database is damaged, or not a database
        └── SchemaMismatch        the tables are older, newer or other than this release needs

    Permanent, RetryLater         raised by handlers to choose what happens next
    DependencyDown                raised by handlers if a dependency is unavailable
    NotAttempted                  an item of a batch that was not tried
    BatchFailed                   raised by batch handlers to name the items that failed

The message is formatted from `template`, a class attribute, so that it is the same under
`python -OO`; its facts are attributes, typed on the class.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar, NamedTuple


class OutlastError(Exception):
    """The base of all errors that Outlast raises. `facts` has the values of the message by name."""

    template: ClassVar[str] = "Something went wrong in Outlast."
    facts: dict[str, Any]

    def __init__(self, message: str | None = None, **facts: object) -> None:
        self.facts = facts
        for name, value in facts.items():
            setattr(self, name, value)
        super().__init__(self.template.format(**facts) if message is None else message)


class InvalidInput(OutlastError, ValueError):
    """The input cannot be used."""

    template = "That input cannot be used."
    task: str | None = None


class Problem(NamedTuple):
    """One problem with one value: its location, and what to do."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class InvalidArguments(InvalidInput):
    """The arguments of a call do not match its task."""

    task: str
    problems: Sequence[Problem]

    def __init__(self, task: str, problems: Sequence[Problem]) -> None:
        noun = "problem" if len(problems) == 1 else "problems"
        listed = "".join(f"\n  {problem}" for problem in problems)
        super().__init__(
            f"{task}: {len(problems)} {noun} with the arguments{listed}",
            task=task,
            problems=tuple(problems),
        )


class InvalidResult(InvalidInput):
    """The return value of a handler cannot be stored."""

    problems: Sequence[Problem]

    def __init__(self, problems: Sequence[Problem]) -> None:
        listed = "".join(f"\n  {problem}" for problem in problems)
        super().__init__(f"the result cannot be stored{listed}", problems=tuple(problems))


class InvalidFlow(InvalidInput):
    """These jobs cannot be enqueued together."""

    problems: Sequence[Problem]

    def __init__(self, problems: Iterable[Problem]) -> None:
        found = tuple(problems)
        listed = "".join(f"\n  {problem}" for problem in found)
        super().__init__(f"these jobs cannot be enqueued together{listed}", problems=found)


class InvalidSignal(InvalidInput):
    """The job does not take this signal, or not this value."""

    signal: str
    problems: Sequence[Problem]

    def __init__(self, signal: str, problems: Iterable[Problem]) -> None:
        found = tuple(problems)
        noun = "problem" if len(found) == 1 else "problems"
        listed = "".join(f"\n  {problem}" for problem in found)
        text = f"signal {signal!r}: {len(found)} {noun}{listed}"
        super().__init__(text, signal=signal, problems=found)


class InvalidOption(InvalidInput):
    """An option is unknown, or its value cannot be used."""

    template = "The option {option} {reason}."
    option: str
    reason: str


class InvalidSetting(InvalidInput):
    """A setting is unknown, or its value cannot be used."""

    template = "The setting {field} {reason}."
    field: str
    reason: str


class TenantRequired(InvalidInput):
    """`Outlast(tenant_required=True)`, or a task of `Databases`: the job names no tenant."""

    template = (
        "A job of {task} must name its tenant: using(tenant=…), @ol.task(tenant=…), --tenant, or a"
        " token of a tenant."
    )
    task: str


class UnknownTenant(InvalidInput):
    """`Databases`: the route names no database for the tenant."""

    template = (
        "No database has the tenant {tenant!r}: add it to the route of Databases(…), with one of"
        " {databases}."
    )
    tenant: str
    databases: str


class KeyConflict(OutlastError):
    """The idempotency key belongs to another call, or to another flow."""

    template = (
        "The key {key!r} in queue {queue!r} already belongs to job {job}, which is another call: "
        "use another key, or the same arguments."
    )
    key: str
    queue: str | None
    job: str | None
    flow: str | None = None  # for the key of a flow

    @classmethod
    def of_flow(cls, key: str, flow: str) -> KeyConflict:
        return cls(
            f"The key {key!r} already belongs to flow {flow}, which has other jobs: use another"
            " key, or the same tasks, arguments, queues and order.",
            key=key,
            queue=None,
            job=None,
            flow=flow,
        )


class QueueFull(OutlastError):
    """The bounded queue has no room; nothing was enqueued."""

    template = (
        "The queue {queue!r} is full: {waiting:,} jobs are ready, {most_waiting:,} may be, and"
        " {asked:,} more do not fit. Enqueue later, add workers, or raise most_waiting."
    )
    queue: str
    waiting: int  # ready jobs at the last count
    most_waiting: int
    asked: int


class QuotaExceeded(OutlastError):
    """The queue, or the lane, has admitted as many jobs in this period as it may; nothing was
    enqueued."""

    template = (
        "The quota of {subject} has no room for {asked:,} more: {used:,} of {allowed:,} jobs are"
        " used. {advice}"
    )
    subject: str  # the queue, or the lane, in words
    advice: str
    queue: str
    lane: str | None  # None: the quota of the whole queue
    asked: int
    allowed: int  # jobs in a period
    used: int  # in this period
    resets_at: datetime  # when the next period begins


class UnknownTask(OutlastError):
    """No task of that name is registered in this process."""

    template = "No task named {task!r} is registered here: import the module that defines it."
    task: str


class JobNotFound(OutlastError):
    """No job has that id."""

    template = "There is no job {job}: it never existed, or it finished and was pruned."
    job: str


class TooLate(OutlastError):
    """The job ended before the request."""

    template = "Job {job} is already {state}."
    job: str
    state: str


class TooEarly(OutlastError):
    """The job has not ended yet."""

    template = "Job {job} is {state}: only an ended job can be erased."
    job: str
    state: str


class FlowNotFound(OutlastError):
    """No flow has that id."""

    template = "There is no flow {flow}: it never existed, or it ended and was pruned."
    flow: str | None


class FlowClosed(OutlastError):
    """The flow was cancelled or has ended: no job can join it."""

    template = "Flow {flow} {reason}: no job can join it."
    flow: str
    reason: str


class PrerequisiteFailed(OutlastError):
    """The job would wait for a job that did not succeed."""

    template = (
        "It would wait for job {job}, which is {state}: retry that one first, or let this one run "
        'anyway with when="finished".'
    )
    job: str
    state: str


class TokenNotFound(OutlastError):
    """No token has that id."""

    template = "There is no token {token}: `outlast token list` lists them."
    token: str


class LinkRefused(OutlastError):
    """The one-time link sends no signal (any more)."""

    template = "This link cannot be used: {state}."
    state: str  # unknown, used, revoked, expired, answered (by another link), ended (the job)


class WorkerNotFound(OutlastError):
    """No worker has that id."""

    template = "There is no worker {worker}: `outlast workers` lists them."
    worker: str


class ScheduleNotFound(OutlastError):
    """There is no such schedule."""

    template = "There is no schedule {name!r}: `outlast schedules` lists them."
    name: str


class ScheduleExists(OutlastError):
    """A schedule of that name exists, in code or made at run time."""

    template = "There is a schedule {name!r} already: change or delete it, or take another name."
    name: str


class ClaimLost(OutlastError):
    """The attempt no longer owns its job."""

    template = (
        "This attempt no longer owns job {job}: another worker may have it; nothing was changed."
    )
    job: str


class JobFailed(OutlastError):
    """The awaited job ended without a result."""

    template = "Job {job} ended without a result."
    job: str


class JobDead(JobFailed):
    """The awaited job is dead."""

    template = "Job {job} is dead: {reason}."
    reason: str


class JobCancelled(JobFailed):
    """The awaited job was cancelled."""

    template = "Job {job} was cancelled: {reason}."
    reason: str


class SignalTimeout(OutlastError, TimeoutError):
    """Raised by `ctx.wait`, `ctx.wait_any` and `ctx.wait_for`."""

    template = "{wait!r} timed out: {subject} did not come in time."
    wait: str  # its name within the job
    subject: str  # what it waited for


class ResultTimeout(OutlastError, TimeoutError):
    """The awaited job did not end in time."""

    template = "Job {job} has not ended within {timeout} s; it is {state}."
    job: str
    timeout: float | None
    state: str


class ResultMismatch(OutlastError):
    """The stored result of a job is not of the type that its task is annotated to return."""

    job: str
    task: str
    problems: Sequence[Problem]

    def __init__(self, job: str, task: str, problems: Sequence[Problem]) -> None:
        listed = "".join(f"\n  {problem}" for problem in problems)
        super().__init__(
            f"The result of job {job} is not what {task} is annotated to return:{listed}\n"
            "Read it as JSON with raw=True, or annotate the task with what it returns.",
            job=job,
            task=task,
            problems=tuple(problems),
        )


class Erased(OutlastError):
    """The result was erased, by a reader or on request."""

    template = "The result of job {job} was erased by {by} at {at}."
    job: str
    by: str
    at: str | None
    action: str | None


class BlobError(OutlastError):
    """A payload that is stored by reference cannot be read."""

    template = "A payload that is stored by reference cannot be read."


class BlobUnavailable(BlobError):
    """The blob store cannot be reached."""

    template = "The blob store cannot be reached: {reason}."
    reason: str


class BlobLost(BlobError):
    """A blob is missing, or is not what was stored."""

    template = "The blob {name} {reason}."
    name: str
    reason: str


class NoBlobStore(BlobError):
    """This process has no blob store."""

    template = (
        "A payload of job {job} is stored by reference ({bytes:,} bytes), and this process has no "
        "blob store: set one with blobs=, --blobs or OUTLAST_BLOBS."
    )
    job: str
    bytes: int


class ServerRefused(OutlastError):
    """The server does not accept this worker."""

    template = "The server refuses this worker: {reason}."
    reason: str


class WebhookRefused(OutlastError):
    """A webhook message is not authentic, or not recent."""

    template = "This message cannot be trusted: {reason}."
    reason: str


class StoreError(OutlastError):
    """The database refused a statement. `refused`: because of a value of one row."""

    template = "The database refused."
    refused: bool = False


class StoreUnavailable(StoreError):
    """The database cannot be reached. `broke`: an open connection was lost."""

    template = "The database cannot be reached: {reason}."
    reason: str
    broke: bool = False


class ServerUnavailable(StoreUnavailable):
    """A remote worker's server cannot be reached."""

    template = "The server cannot be reached: {reason}."


class StoreBusy(StoreError):
    """The database is busy. `locked`: another connection holds a lock."""

    template = "The database is busy: {reason}."
    reason: str
    locked: bool = False


class Contention(StoreError):
    """Two transactions conflicted."""

    template = "Two transactions conflicted: {reason}."
    reason: str


class DeadlineExceeded(StoreError, TimeoutError):
    """The database did not answer in time."""

    template = "The database did not answer within {seconds} s; the connection was closed."
    seconds: float


class WrongConnection(StoreError):
    """The caller's connection cannot carry this job."""

    template = "{reason}."
    reason: str


class Unsupported(StoreError):
    """This database or installation lacks the feature."""

    template = "{reason}."
    reason: str


class NoDatabase(StoreError):
    """There is no Outlast database at that address."""

    template = (
        "There is no Outlast database at {place}: check the URL and the schema, or run "
        "`outlast migrate` to create one there."
    )
    place: str


class CorruptDatabase(StoreError):
    """The database is damaged, or not a database."""

    template = (
        "The database is damaged: {reason}. Stop its workers, keep a copy of its files, and "
        "restore a backup{or_else}."
    )
    reason: str
    or_else: str


class SchemaMismatch(StoreError):
    """The tables are not those that this release needs."""

    template = "{reason}."
    reason: str


# A program that starts on such a database ends with the reason: no waiting repairs it.
PERMANENT_ERRORS = (CorruptDatabase, SchemaMismatch, Unsupported)

_LARGEST_FLOAT = sys.float_info.max  # NaN, infinity and larger integers cannot be stored


class Permanent(Exception):
    """Raise in a handler: this job can never succeed; it becomes dead without a retry."""


class RetryLater(Exception):
    """Raise in a handler: retry in some seconds, without counting a failure. With `spent` it counts
    as a failure, and is not retried before that time."""

    spent = False

    def __init__(self, seconds: float, reason: str = "", *, spent: bool = False) -> None:
        if not isinstance(seconds, int | float) or not 0 <= seconds <= _LARGEST_FLOAT:
            raise InvalidOption(
                option="seconds",
                reason=f"of RetryLater must be a number from 0, not {seconds!r:.80}",
            )
        self.seconds = float(seconds)
        self.spent = spent
        super().__init__(reason or f"retry in {seconds:g} s")


class DependencyDown(Exception):
    """Raise in a handler: a dependency of this task is down, for every job. The task's circuit
    breaker opens: its jobs in this queue stay ready, unspent, until a probe succeeds."""


class NotAttempted(Exception):
    """For an item in `BatchFailed`: it was not tried, and returns to its queue, unspent. It keeps
    its position there. A job that runs alone is tried again after a second."""


class BatchFailed(Exception):
    """Raise in the handler of a batch task: these items failed, by index in the list; the others
    succeeded, with these results if any.

    An error is an exception or a sentence. `Permanent` and `RetryLater` act on their item as
    they do on a job.
    """

    def __init__(
        self, errors: Mapping[int, BaseException | str], results: Sequence[object] | None = None
    ) -> None:
        if not isinstance(errors, Mapping):
            raise TypeError(f"BatchFailed takes {{index: exception or text}}, not {errors!r:.200}")
        for index, error in errors.items():
            if not isinstance(index, int) or not isinstance(error, BaseException | str):
                raise TypeError(
                    f"BatchFailed takes {{index: exception or text}}, not {{{index!r}: {error!r}}}"
                )
        self.errors = dict(errors)
        self.results = None if results is None else list(results)
        super().__init__(f"{len(self.errors)} items failed")
