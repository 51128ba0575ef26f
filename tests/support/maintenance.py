"""The maintenance of a worker, without the worker."""

from __future__ import annotations

from collections import deque
from typing import Any

from outlast import Outlast
from outlast.model.ids import new_instance_id
from outlast.model.settings import WorkerSettings
from outlast.store import Store
from outlast.worker.maintenance import AppParts, Maintenance, Outcomes, Signals
from outlast.worker.outcome_policy import OutcomePolicy
from outlast.worker.shared import WorkerShared
from outlast.worker.state import WorkerState
from outlast.worker.threads import Threads


def healer_of(app: Outlast, store: Store | None = None, **settings: Any) -> Maintenance:
    shared = WorkerShared(WorkerState(new_instance_id(), WorkerSettings.of(**settings)), Threads(1))
    outcomes = Outcomes(OutcomePolicy(app.registry).decide, deque(), lambda: None)
    signals = Signals(
        poll=lambda: None,
        ready=lambda queues: None,
        notify=lambda queues: None,
        cancelled=lambda: None,
    )
    parts = AppParts(app.retention, app.blobs)
    return Maintenance(store or app.store, shared, outcomes, signals, parts)
