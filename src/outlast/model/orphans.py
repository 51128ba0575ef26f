"""The catalogue of orphans: every known way in which job systems leave work behind.

A job is an orphan when no live process will ever process it. Here each class is impossible, healed,
ended, or kept in plain sight; `by` names the mechanism. Duties and the audit count under these
names, and `outlast doctor` prints them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Fate(StrEnum):
    IMPOSSIBLE = "impossible"
    HEALED = "healed"
    ENDED = "ended"  # its jobs reach a final state, with the reason
    KEPT = "kept"  # its jobs wait, unspent, and doctor reports them


@dataclass(frozen=True, slots=True)
class Orphan:
    name: str
    arises: str
    fate: Fate
    by: str
    duty: str = ""  # the duty whose row counts the jobs found and healed
    finder: str = ""  # the statement that finds them, if rows can show it


_I, _H, _E, _K = Fate.IMPOSSIBLE, Fate.HEALED, Fate.ENDED, Fate.KEPT

_ALL = (
    Orphan("untriggered", "A job was committed and its message never published.", _I,
           "The row is the trigger; a notification only makes it faster."),
    Orphan("timer-lost", "A delay or a retry lived in the memory of a process.", _I,
           "run_at is in the row, and every claim makes due jobs ready; the audit checks again.",
           "audit", "find_timer_lost"),
    Orphan("owner-dead", "A worker was killed, ran out of memory, or its host was lost.", _H,
           "Its supervisor, its free liveness lock or its lease shows it; any worker reclaims.",
           "reclaim", "find_owner_dead"),
    Orphan("owner-hung", "A worker is alive and renews, and the handler is stuck.", _H,
           "The job's own deadline, enforced by its worker and by the duty 'deadline' of others.",
           "deadline", "find_owner_hung"),
    Orphan("forgotten", "A live worker lost track of a job; its heartbeat hides that.", _H,
           "Only jobs in flight are renewed; a worker releases jobs it owns and does not run.",
           "reclaim", "find_forgotten"),
    Orphan("unstarted", "A job was claimed and never started.", _H,
           "Released unspent by its worker, or reclaimed like the jobs of a dead one.",
           "reclaim", "find_owner_dead"),
    Orphan("renamed", "A restarted worker reuses a name and answers for a dead one.", _I,
           "Every start has a random id."),
    Orphan("invisible", "A stale owner or lease keeps a job from being claimed.", _I,
           "A CHECK ties owner, lease and state together; the audit checks again.",
           "audit", "find_invisible"),
    Orphan("zombie", "A paused owner resumes and writes.", _I,
           "Every write names the fence of its claim."),
    Orphan("poison", "A job kills every worker that runs it, and only failures are counted.", _E,
           "Lost workers are counted separately; at the cap the job is dead, with the evidence.",
           "reclaim", "find_poison"),
    Orphan("mislabelled", "A job that is slow but alive is reclaimed by its age.", _I,
           "Recovery depends on liveness, never on age; the finish of a live owner wins."),
    Orphan("half-fanned", "Only some children of a fan-out were inserted.", _I,
           "A flow is inserted in one transaction."),
    Orphan("unfired", "The last child has ended, and its dependents never started.", _I,
           "The end of a job is counted in the same transaction; the audit recounts from rows.",
           "audit", "waiting_after"),
    Orphan("deaf-parent", "A child is dead, cancelled, expired or gone, unnoticed.", _I,
           "Every end of a job passes one operation, and prune keeps prerequisites; the"
           " audit recounts.", "audit", "waiting_after"),
    Orphan("miscounted", "A child was counted twice, or not at all.", _I,
           "The change of the child's row is the count, once; the audit recounts from rows.",
           "audit", "waiting_after"),
    Orphan("unhooked", "A job ended, and its hook was never enqueued.", _I,
           "Hooks are jobs, inserted in the transaction that ends their job."),
    Orphan("unwoken", "A handler waits for what is there already: the wake-up was missed.", _I,
           "The end of an attempt reads signals, and a signal reads waits, each under the lock of"
           " the job's row; the audit checks again.", "audit", "find_unwoken"),
    Orphan("half-cancelled", "The process that cancelled a flow died midway.", _H,
           "The cancellation is recorded first; every worker continues with the rest.",
           "reclaim", "find_half_cancelled"),
    Orphan("uncancelled", "A cancel was requested, and the worker died before it saw it.", _H,
           "The worker that reclaims the job honours the request.", "reclaim", "find_uncancelled"),
    Orphan("leaked-slot", "A unique key outlives its job.", _I,
           "A key is a column of its job and goes with it; the audit removes leftovers."
           " A key that is unique for a time names its holder; the holder's row decides.",
           "audit", "find_leaked_slots"),
    Orphan("unhandled", "No live worker knows the task, or none serves the queue.", _K,
           "Released unspent; doctor and `outlast job` name the missing worker.", "", "unhandled"),
    Orphan("undecodable", "A row cannot be read.", _E,
           "It ends dead, alone, with the reason.", "", "find_undecodable"),
    Orphan("expired", "A job still waits past its expires_at.", _E,
           "The duty 'expire' cancels it with that reason; claims skip it.",
           "expire", "find_expired"),
    Orphan("stalled-net", "A sweeper is off, dead, or fails on its first row.", _H,
           "Duties run in every process and isolate rows; doctor names late or failing ones.",
           "", "duties"),
    Orphan("half-redriven", "A redrive of many jobs died midway.", _I,
           "Each page of a redrive is one guarded write; the same command resumes the rest."),
    Orphan("unmigrated", "A migration died midway, or two releases run side by side.", _H,
           "Migrations are transactions under a lock; a release checks the schema's version.",
           "", "schema_version"),
)  # fmt: skip

ORPHANS = {orphan.name: orphan for orphan in _ALL}

# Leftover rows of other tables; the audit deletes and counts them under these names.
DANGLING = {
    "left-behind": "Attempts, events, steps, waits, signals, links, edges and unique keys of no"
    " job, and flows without a job.",
    "silent-worker": "Registrations of workers that died long ago.",
}
