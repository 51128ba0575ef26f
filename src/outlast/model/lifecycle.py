"""The life cycle of a job: its states and the legal transitions.

               enqueue                 claim                  finish
    waiting ───────────▶ ready ──────────────────▶ running ───────────▶ succeeded
     ▲ ▲  prerequisites   ▲ ▲                     │ │ │ │ └───────────▶ dead
     │ │  finished        │ └── due ── scheduled ◀┘ │ │ └─────────────▶ cancelled
     │ └─ flow            └───── release / reclaim ─┘ │
     └── the handler waits for a signal or a job ─────┘

`LEGAL` is authoritative; both schemas repeat it as CHECK constraints where a single row can show
it, and every statement that changes a state names the states it changes from. The three final
states change only by a redrive, which is recorded.
"""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    WAITING = "waiting"
    SCHEDULED = "scheduled"
    READY = "ready"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    DEAD = "dead"
    CANCELLED = "cancelled"

    @property
    def final(self) -> bool:
        return self in FINAL


STATES = {state.value: state for state in State}  # by their names, as rows spell them
FINAL = frozenset({State.SUCCEEDED, State.DEAD, State.CANCELLED})
REDRIVABLE = (State.DEAD, State.CANCELLED)
QUEUED = frozenset({State.WAITING, State.SCHEDULED, State.READY})

LEGAL: dict[State, frozenset[State]] = {
    State.WAITING: frozenset({State.READY, State.SCHEDULED, State.DEAD, State.CANCELLED}),
    State.SCHEDULED: frozenset({State.READY, State.CANCELLED}),
    # Deferred by the next call of a debounced key, or rescheduled by an operator.
    State.READY: frozenset({State.RUNNING, State.SCHEDULED, State.CANCELLED}),
    # Waiting or scheduled also when the handler waits or sleeps.
    State.RUNNING: frozenset({State.READY, State.SCHEDULED, State.WAITING}) | FINAL,
    # Only by a redrive:
    State.DEAD: frozenset({State.WAITING, State.READY}),
    State.CANCELLED: frozenset({State.WAITING, State.READY}),
    State.SUCCEEDED: frozenset(),
}


class Outcome(StrEnum):
    """The outcome of one attempt."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"  # the handler raised
    TIMED_OUT = "timed-out"  # the handler ran past the job's timeout
    PERMANENT = "permanent"  # the handler raised `Permanent`
    POSTPONED = "postponed"  # the handler postponed the job
    WAITED = "waited"  # attempt unspent: the handler sleeps, or waits for a signal or a job
    CANCELLED = "cancelled"
    RELEASED = "released"  # attempt unspent: shutdown, unknown task, lost in transit
    CRASHED = "crashed"  # its owner was lost
    STALLED = "stalled"  # its owner stopped renewing although its process exists
    UNDECODABLE = "undecodable"  # its arguments could not be read
