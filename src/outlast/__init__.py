"""Outlast: background jobs that outlast the processes that run them.

In reading order, by the life of a job:

    task_decorator, tasks    define     a function becomes a task
    ops.enqueue, client      enqueue    a call becomes a row, also in your own transaction
    store.blobs              offload    data too large for a row is stored before the row
    ops.claim                claim      a worker takes it, under a lease and a fence
    worker.executor          run        the function is called (worker.batches: with many items)
    worker.steps, ops.steps  steps      stores the results of its steps, for later attempts
    worker.waits, ops.waits  wait       for time, a signal or another job; the attempt ends
    ops.signals              signal     a value is sent to it
    ops.finish               finish     the one way out of running
    ops.dependents           continue   dependents are notified, and the next ones start
    webhooks.webhook         notify     another server receives its end, by a job of its own
    bridges                  bridge     messages become jobs, and jobs messages
    ops.renew, ops.reclaim   recover    renewed while it runs; reclaimed when its owner is gone
    ops.report, ops.explain  observe    what exists, and why a job is not running

Decisions are in `model`, conversations with the database in `ops`, connections and SQL in `store`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .version import VERSION as __version__

if TYPE_CHECKING:
    from .client.client import Outlast
    from .client.databases import Databases
    from .model.blob import Blob
    from .model.breaker import Breaker
    from .model.errors import (
        BatchFailed,
        BlobError,
        BlobLost,
        BlobUnavailable,
        ClaimLost,
        Contention,
        CorruptDatabase,
        DeadlineExceeded,
        DependencyDown,
        Erased,
        FlowClosed,
        FlowNotFound,
        InvalidArguments,
        InvalidFlow,
        InvalidInput,
        InvalidOption,
        InvalidResult,
        InvalidSetting,
        InvalidSignal,
        JobCancelled,
        JobDead,
        JobFailed,
        JobNotFound,
        KeyConflict,
        LinkRefused,
        NoBlobStore,
        NoDatabase,
        NotAttempted,
        OutlastError,
        Permanent,
        PrerequisiteFailed,
        Problem,
        QueueFull,
        QuotaExceeded,
        ResultMismatch,
        ResultTimeout,
        RetryLater,
        ScheduleExists,
        ScheduleNotFound,
        SchemaMismatch,
        ServerRefused,
        ServerUnavailable,
        SignalTimeout,
        StoreBusy,
        StoreError,
        StoreUnavailable,
        TenantRequired,
        TokenNotFound,
        TooEarly,
        TooLate,
        UnknownTask,
        UnknownTenant,
        Unsupported,
        WebhookRefused,
        WorkerNotFound,
        WrongConnection,
    )
    from .model.flow import Chain, Flow, Group, Node, chain, group
    from .model.job import Job
    from .model.lifecycle import State
    from .model.retry import Retry
    from .model.schedule_state import Schedule
    from .model.secret import Secret
    from .model.settings import RetentionSettings, ServiceSettings, StoreSettings, WorkerSettings
    from .model.signal_link import SignalLink
    from .model.stream import StreamChunk
    from .model.task import Call
    from .ops.flow_report import FlowState
    from .store.blobs.store import BlobStore
    from .task import Task
    from .worker.batch_context import BatchContext
    from .worker.context import Context
    from .worker.worker import Worker

_HOMES = {
    "Outlast": "client.client",
    "Databases": "client.databases",
    "Blob": "model.blob",
    "BlobStore": "store.blobs.store",
    "Breaker": "model.breaker",
    "Chain": "model.flow",
    "Flow": "model.flow",
    "Group": "model.flow",
    "Node": "model.flow",
    "chain": "model.flow",
    "group": "model.flow",
    "Job": "model.job",
    "State": "model.lifecycle",
    "Retry": "model.retry",
    "Schedule": "model.schedule_state",
    "StreamChunk": "model.stream",
    "Secret": "model.secret",
    "RetentionSettings": "model.settings",
    "ServiceSettings": "model.settings",
    "SignalLink": "model.signal_link",
    "StoreSettings": "model.settings",
    "WorkerSettings": "model.settings",
    "FlowState": "ops.flow_report",
    "Call": "model.task",
    "Task": "task",
    "BatchContext": "worker.batch_context",
    "Context": "worker.context",
    "Worker": "worker.worker",
}  # everything else that is public is an error

__all__ = [
    "BatchContext",
    "BatchFailed",
    "Blob",
    "BlobError",
    "BlobLost",
    "BlobStore",
    "BlobUnavailable",
    "Breaker",
    "Call",
    "Chain",
    "ClaimLost",
    "Contention",
    "Context",
    "CorruptDatabase",
    "Databases",
    "DeadlineExceeded",
    "DependencyDown",
    "Erased",
    "Flow",
    "FlowClosed",
    "FlowNotFound",
    "FlowState",
    "Group",
    "InvalidArguments",
    "InvalidFlow",
    "InvalidInput",
    "InvalidOption",
    "InvalidResult",
    "InvalidSetting",
    "InvalidSignal",
    "Job",
    "JobCancelled",
    "JobDead",
    "JobFailed",
    "JobNotFound",
    "KeyConflict",
    "LinkRefused",
    "NoBlobStore",
    "NoDatabase",
    "Node",
    "NotAttempted",
    "Outlast",
    "OutlastError",
    "Permanent",
    "PrerequisiteFailed",
    "Problem",
    "QueueFull",
    "QuotaExceeded",
    "ResultMismatch",
    "ResultTimeout",
    "RetentionSettings",
    "Retry",
    "RetryLater",
    "Schedule",
    "ScheduleExists",
    "ScheduleNotFound",
    "SchemaMismatch",
    "Secret",
    "ServerRefused",
    "ServerUnavailable",
    "ServiceSettings",
    "SignalLink",
    "SignalTimeout",
    "State",
    "StoreBusy",
    "StoreError",
    "StoreSettings",
    "StoreUnavailable",
    "StreamChunk",
    "Task",
    "TenantRequired",
    "TokenNotFound",
    "TooEarly",
    "TooLate",
    "UnknownTask",
    "UnknownTenant",
    "Unsupported",
    "WebhookRefused",
    "Worker",
    "WorkerNotFound",
    "WorkerSettings",
    "WrongConnection",
    "__version__",
    "chain",
    "group",
]


def __getattr__(name: str) -> Any:
    """Import public names on first use, so that importing outlast is fast."""
    if name not in __all__:
        raise AttributeError(f"module 'outlast' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f".{_HOMES.get(name, 'model.errors')}", __name__), name)
    globals()[name] = value
    return value
