"""The catalogue of orphans: every way in which work has been left behind by some job system.

A job is an orphan when nothing that is alive will ever move it on. Each class is impossible here,
or healed, or its jobs end or wait in plain sight; `by` says what sees to it. The nets and the
audit count under these names, and `outlast doctor` prints them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Fate(StrEnum):
    IMPOSSIBLE = "impossible"
    HEALED = "healed"
    ENDED = "ended"  # its jobs reach a final state, with the reason
    KEPT = "kept"  # its jobs wait, unspent, and somebody is told


@dataclass(frozen=True, slots=True)
class Orphan:
    name: str
    arises: str
    fate: Fate
    by: str
    duty: str = ""  # the duty whose row counts what was found and healed
    finder: str = ""  # the statement that finds them, where rows can show it


_I, _H, _E, _K = Fate.IMPOSSIBLE, Fate.HEALED, Fate.ENDED, Fate.KEPT

_ALL = (
    Orphan("untriggered", "A job was committed and its message never published.", _I,
           "The row is the trigger; a wake-up only makes it faster."),
    Orphan("timer-lost", "A delay or a retry lived in the memory of a process.", _I,
           "run_at is in the row, and every claim makes due jobs ready; the audit looks again.",
           "audit", "find_timer_lost"),
    Orphan("owner-dead", "A worker was killed, ran out of memory, or its host was lost.", _H,
           "Its supervisor, its free liveness lock or its lease tells; anyone takes its jobs back.",
           "reclaim", "find_owner_dead"),
    Orphan("owner-hung", "A worker lives and renews, and the handler is stuck.", _H,
           "The job's own deadline, kept by its worker and by the duty 'deadline' of the others.",
           "deadline", "find_owner_hung"),
    Orphan("forgotten", "A live worker dropped a job; its heartbeat hides that.", _H,
           "Only jobs truly in hand are renewed; a worker releases what it owns and does not hold.",
           "reclaim", "find_forgotten"),
    Orphan("unstarted", "A job was claimed and never begun.", _H,
           "Released unspent by its worker, or taken back like the jobs of a dead one.",
           "reclaim", "find_owner_dead"),
    Orphan("renamed", "A restarted worker reuses a name and answers for a dead one.", _I,
           "Every start has a random id."),
    Orphan("invisible", "A stale owner or lease keeps a job from being claimed.", _I,
           "A CHECK ties owner, lease and state together; the audit looks again.",
           "audit", "find_invisible"),
    Orphan("zombie", "A paused owner comes back and writes.", _I,
           "Every write names the fence of its claim."),
    Orphan("poison", "A job kills every worker it meets, and only failures are counted.", _E,
           "Lost workers are counted apart; at the cap the job is dead, with the evidence.",
           "reclaim", "find_poison"),
    Orphan("mislabelled", "A job that is slow but alive is taken back by its age.", _I,
           "Recovery goes by liveness, never by age; the finish of a live owner wins."),
    Orphan("half-fanned", "Some children of a fan-out were inserted.", _I,
           "All of a flow is one transaction."),
    Orphan("unfired", "The last child is done, and what comes after it was never started.", _I,
           "Who ends a job counts it off in the same transaction; the audit recounts from truth.",
           "audit", "waiting_after"),
    Orphan("deaf-parent", "A child is dead, cancelled, expired or gone, and nobody told.", _I,
           "Every way to a final state passes one door, and prune keeps what others wait for; the"
           " audit recounts.", "audit", "waiting_after"),
    Orphan("miscounted", "A child was counted twice, or not at all.", _I,
           "The change of the child's row is the count, once; the audit recounts from truth.",
           "audit", "waiting_after"),
    Orphan("unhooked", "A job ended, and the job that was to be made then was not.", _I,
           "Hooks are jobs, inserted in the transaction that ends theirs."),
    Orphan("half-cancelled", "Who cancelled a flow died midway.", _H,
           "That it was cancelled is on record first; every worker goes on with what is left.",
           "reclaim", "find_half_cancelled"),
    Orphan("uncancelled", "A cancel was asked for, and the worker died before it saw it.", _H,
           "Whoever takes the job back honours the request.", "reclaim", "find_uncancelled"),
    Orphan("leaked-slot", "A unique key is held by nobody.", _I,
           "A key is a column of its job and goes with it; the audit removes what prune missed."
           " One that is unique for a time names its holder, whose own row says if it holds.",
           "audit", "find_leaked_slots"),
    Orphan("unhandled", "No live worker knows the task, or none serves the queue.", _K,
           "Put back unspent; doctor and the job itself say who is missing.", "", "unhandled"),
    Orphan("undecodable", "A row cannot be read.", _E,
           "It ends dead, alone, with the reason.", "", "find_undecodable"),
    Orphan("expired", "A job still waits past its own expires_at.", _E,
           "The duty 'expire' cancels it with that reason; no claim takes it.",
           "expire", "find_expired"),
    Orphan("stalled-net", "A sweeper is off, dead, or fails on its first row.", _H,
           "Duties run in every process and isolate rows; doctor tells which is late or fails.",
           "", "duties"),
    Orphan("half-redriven", "A redrive of many jobs died midway.", _I,
           "Each page of a redrive is one guarded write; the same command goes on with the rest."),
    Orphan("unmigrated", "A migration died midway, or two releases work side by side.", _H,
           "Migrations are transactions under a lock; a release says which tables it can use.",
           "", "schema_version"),
)  # fmt: skip

ORPHANS = {orphan.name: orphan for orphan in _ALL}

# Not jobs, but what they leave lying about; the audit clears it away under these names.
DANGLING = {
    "left-behind": "Attempts, events, steps, ties and unique keys whose job is gone, and"
    " flows without a job.",
    "silent-worker": "Cards of workers that died long ago.",
}
