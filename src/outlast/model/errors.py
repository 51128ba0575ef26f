"""Everything that can go wrong, as one tree.

    OutlastError
    ├── InvalidInput              what was asked for cannot be (also a ValueError)
    │   ├── InvalidArguments      a call's arguments do not fit its task; names every problem
    │   ├── InvalidResult         what a handler returned cannot be stored; names every problem
    │   ├── InvalidFlow           jobs that cannot be enqueued together; names every problem
    │   ├── InvalidOption         an option (priority, delay, queue, …) is unknown or out of range
    │   └── InvalidSetting        a setting is out of range or unknown; names the field
    ├── KeyConflict               the same idempotency key was used with another call
    ├── UnknownTask               no task of that name is registered here
    ├── JobNotFound               no such job
    ├── TooLate                   the job already ended another way
    ├── TooEarly                  the job has not ended yet
    ├── FlowNotFound              no such flow
    ├── FlowClosed                the flow was cancelled or has ended: nothing can join it
    ├── PrerequisiteFailed        the job would wait for one that did not succeed
    ├── TokenNotFound             no such token
    ├── WorkerNotFound            no such worker
    ├── ClaimLost                 this attempt no longer owns its job; its write changed nothing
    ├── JobFailed                 the awaited job ended without a result
    │   ├── JobDead
    │   └── JobCancelled
    ├── ResultTimeout             the awaited job has not ended yet
    ├── Erased                    the result was read and erased, or forgotten
    ├── BlobError                 what is kept by reference cannot be had
    │   ├── BlobUnavailable       the blob store cannot be reached
    │   ├── BlobLost              it is gone, or not what was stored
    │   └── NoBlobStore           this process has none
    ├── ServerRefused             a server does not let this worker in
    ├── WebhookRefused            a message is not from whom it says, or not from now
    └── StoreError                the database said no
        ├── StoreUnavailable      no connection, or it broke
        │   └── ServerUnavailable the same, of a remote worker's server
        ├── StoreBusy             something else held a lock for too long
        ├── Contention            two transactions were in each other's way
        ├── DeadlineExceeded      no answer in time; the connection was given up
        ├── WrongConnection       the caller's connection cannot carry this job
        ├── Unsupported           this database cannot do what was asked for
        ├── NoDatabase            there is no Outlast database at that place
        ├── CorruptDatabase       the database is damaged, or not a database
        └── SchemaMismatch        the tables are older, newer or other than this release needs

    Permanent, RetryLater         raised by handlers to say what should happen next
    DependencyDown                raised by handlers to say that what they depend on is away
    BatchFailed                   raised by batch handlers to name the items that failed

The docstring of an error is its message template; the facts are attributes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple


class OutlastError(Exception):
    """Something went wrong in Outlast."""

    def __init__(self, message: str | None = None, **facts: Any) -> None:
        self.facts = facts
        for name, value in facts.items():
            setattr(self, name, value)
        template = message if message is not None else (type(self).__doc__ or "").strip()
        super().__init__(template.format(**facts) if message is None else message)


class InvalidInput(OutlastError, ValueError):
    """That input cannot be used."""


class Problem(NamedTuple):
    """One thing wrong with one value: where it stands, and what to do."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class InvalidArguments(InvalidInput):
    """The arguments do not fit the task."""

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
    """What the handler returned cannot be stored."""

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


class InvalidOption(InvalidInput):
    """The option {option} {reason}."""


class InvalidSetting(InvalidInput):
    """The setting {field} {reason}."""


class KeyConflict(OutlastError):
    """The key {key!r} in queue {queue!r} already belongs to job {job}, which is another call: use \
another key, or the same arguments."""

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


class UnknownTask(OutlastError):
    """No task named {task!r} is registered here: import the module that defines it."""


class JobNotFound(OutlastError):
    """There is no job {job}: it never existed, or it finished and was pruned."""


class TooLate(OutlastError):
    """Job {job} is already {state}."""


class TooEarly(OutlastError):
    """Job {job} is {state}: only what has ended can be forgotten."""


class FlowNotFound(OutlastError):
    """There is no flow {flow}: it never existed, or it ended and was pruned."""


class FlowClosed(OutlastError):
    """Flow {flow} {reason}: no job can join it."""


class PrerequisiteFailed(OutlastError):
    """It would wait for job {job}, which is {state}: retry that one first, or let this one run \
anyway with when="finished"."""


class TokenNotFound(OutlastError):
    """There is no token {token}: `outlast token list` shows those there are."""


class WorkerNotFound(OutlastError):
    """There is no worker {worker}: `outlast workers` shows those there are."""


class ClaimLost(OutlastError):
    """This attempt no longer owns job {job}: another worker may have it; nothing was changed."""


class JobFailed(OutlastError):
    """Job {job} ended without a result."""


class JobDead(JobFailed):
    """Job {job} is dead: {reason}."""


class JobCancelled(JobFailed):
    """Job {job} was cancelled: {reason}."""


class ResultTimeout(OutlastError, TimeoutError):
    """Job {job} has not ended within {timeout} s; it is {state}."""


class Erased(OutlastError):
    """What job {job} gave was erased by {by} at {at}."""


class BlobError(OutlastError):
    """What is kept by reference cannot be had."""


class BlobUnavailable(BlobError):
    """The blob store cannot be reached: {reason}."""


class BlobLost(BlobError):
    """The blob {name} {reason}."""


class NoBlobStore(BlobError):
    """What job {job} was given or gave is kept by reference ({bytes:,} bytes), and this process \
has no blob store: give it one, as blobs=, --blobs or OUTLAST_BLOBS."""


class ServerRefused(OutlastError):
    """The server refuses this worker: {reason}."""


class WebhookRefused(OutlastError):
    """This message cannot be trusted: {reason}."""


class StoreError(OutlastError):
    """The database refused."""


class StoreUnavailable(StoreError):
    """The database cannot be reached: {reason}."""


class ServerUnavailable(StoreUnavailable):
    """The server cannot be reached: {reason}."""


class StoreBusy(StoreError):
    """The database is busy: {reason}."""

    locked: bool = False  # the database said that somebody else holds a lock


class Contention(StoreError):
    """Two transactions were in each other's way: {reason}."""


class DeadlineExceeded(StoreError, TimeoutError):
    """The database did not answer within {seconds} s; the connection was given up."""


class WrongConnection(StoreError):
    """{reason}."""


class Unsupported(StoreError):
    """{reason}."""


class NoDatabase(StoreError):
    """There is no Outlast database at {place}: check the URL and the schema, or run \
`outlast migrate` to create one there."""


class CorruptDatabase(StoreError):
    """The database is damaged: {reason}. Stop its workers, keep a copy of its files, and restore \
a backup{or_else}."""


class SchemaMismatch(StoreError):
    """{reason}."""


_LARGEST_FLOAT = sys.float_info.max  # NaN, infinity and larger integers cannot be stored


class Permanent(Exception):
    """Raise in a handler: this job can never succeed; it goes dead at once, unretried."""


class RetryLater(Exception):
    """Raise in a handler: try again in some seconds, without spending the failure budget. `spent`:
    it is a failure like any other, and not tried again before that time."""

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
    """Raise in a handler: what this task depends on is away, whichever job asks. The task's circuit
    breaker opens: its jobs in this queue stay ready, unspent, until a probe succeeds."""


class BatchFailed(Exception):
    """Raise in the handler of a batch task: these items failed, by their index in the list, and the
    others succeeded, with these results if any.

    An error is an exception or a sentence. `Permanent` and `RetryLater` mean for their item what
    they mean for a job.
    """

    def __init__(
        self, errors: Mapping[int, BaseException | str], results: Sequence[Any] | None = None
    ) -> None:
        for index, error in errors.items():
            if not isinstance(index, int) or not isinstance(error, BaseException | str):
                raise TypeError(
                    f"BatchFailed takes {{index: exception or text}}, not {{{index!r}: {error!r}}}"
                )
        self.errors = dict(errors)
        self.results = None if results is None else list(results)
        super().__init__(f"{len(self.errors)} items failed")
