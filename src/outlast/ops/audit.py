"""Audit: find and repair rows that should be impossible, or should have been repaired long ago.

A check names a class of the catalogue of orphans, finds its rows page by page, and repairs them by
guarded writes: a row that no longer needs the repair, because its owner has returned, is left
alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ..model.lease_trust import BELIEVE, Belief
from ..model.lifecycle import State
from .dependents import notify_dependents
from .operation import BEGIN, Op, Rows, Statement
from .reclaim import DecideFn, LockedFn, none_locked, release_expired, release_overdue
from .retention import delete_dependents_rows

PAGE = 500
OVERDUE_AFTER_S = 60.0  # seconds after which a working duty would have healed it
LOWEST_ID = "00000000-0000-0000-0000-000000000000"  # sorts before every id

Repair = Callable[[Sequence[str]], Op[int]]


class OrphanRow(NamedTuple):
    """One row that was found, and its age in this condition in seconds."""

    id: str
    seconds: float


class LeaseEvidence(NamedTuple):
    """How far leases and clocks are trusted at the time of a repair."""

    belief: Callable[[], Belief] = lambda: BELIEVE
    locked: LockedFn = none_locked


TRUST_LEASES = LeaseEvidence()


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    finder: str
    repair: Repair
    params: Mapping[str, object] = field(default_factory=dict)
    loud: bool = True
    trusted: LeaseEvidence | None = None  # for checks by lease

    def find(self, limit: int = PAGE, skip: int = 0) -> Op[list[OrphanRow]]:
        leases = self.trusted.belief().leases if self.trusted else {}
        return find(self.finder, limit, skip, **self.params, **leases)


def find(finder: str, limit: int = PAGE, skip: int = 0, **params: object) -> Op[list[OrphanRow]]:
    """A page of the rows that a finder returns."""
    rows: Rows = yield Statement(finder, {"limit": limit, "skip": skip, **params})
    return [OrphanRow(id, float(seconds or 0.0)) for id, seconds in rows]


def checks(
    keep: Mapping[str, float], silent: float, slack: float, decided: DecideFn,
    trusted: LeaseEvidence = TRUST_LEASES,
) -> list[Check]:  # fmt: skip
    """The checks of the audit. `keep` is the retention of ended jobs by state, `silent` how long a
    worker without heartbeat stays listed, `slack` how far a job may exceed its deadline, `decided`
    its transition then, `trusted` whether expired leases are believed."""
    late = {"late": OVERDUE_AFTER_S}
    hung = slack + OVERDUE_AFTER_S
    endless = "was unknown, and its lease ended too far in the future"
    return [
        Check(
            "invisible", "find_ownerless", _release_expired("had no owner and no lease", trusted)
        ),
        Check("invisible", "find_invisible", _guarded_write("clear_owner")),
        _by_lease("owner-dead", "find_endless", endless, trusted),
        _by_lease("uncancelled", "find_uncancelled", "stopped renewing", trusted, late),
        _by_lease("forgotten", "find_forgotten", "lost track of it", trusted, late),
        _by_lease("owner-dead", "find_owner_dead", "stopped renewing", trusted, late),
        Check(
            "owner-hung",
            "find_owner_hung",
            _release_overdue(hung, decided, trusted),
            {"late": hung, "since": trusted.belief().since},
        ),
        Check("timer-lost", "find_timer_lost", _guarded_write("make_ready"), late),
        Check("expired", "find_expired", _end_expired, late),
        Check("unwoken", "find_unwoken", _guarded_write("wake_unwoken"), late),
        *[_leaked_slots(state, span) for state, span in keep.items()],
        Check(
            "silent-worker", "find_silent_workers", _silent_workers(silent), {"late": silent}, False
        ),
    ]


def _by_lease(
    name: str,
    finder: str,
    how: str,
    trusted: LeaseEvidence,
    given: Mapping[str, object] | None = None,
) -> Check:
    return Check(name, finder, _release_expired(how, trusted), given or {}, trusted=trusted)


def _leaked_slots(state: str, keep: float) -> Check:
    given = {"state": state, "late": keep}
    return Check("leaked-slot", "find_leaked_slots", _remove_ended(keep), given)


def dangling_rows(kind: str, after: str, limit: int = 2 * PAGE) -> Op[tuple[list[str], str]]:
    """Deleted jobs that still have attempts, events, steps, waits, output, signals, links, edges or
    unique keys, and flows without a job; and the cursor of the next page."""
    rows: Rows = yield Statement(_PAGES[kind], {"after": after, "limit": limit})
    gone = [id for id, exists in rows if not exists]
    return gone, rows[-1][0] if len(rows) == limit else LOWEST_ID


def delete_dangling(kind: str) -> Repair:
    """The repair that deletes such rows. It counts jobs, not rows."""

    def repair(ids: Sequence[str]) -> Op[int]:
        rows: Rows = yield Statement(_REMOVALS[kind], {"ids": json.dumps(list(ids))})
        return len({id for (id,) in rows})

    return repair


_PAGES = {
    "attempts": "attempts_after",
    "events": "events_after",
    "steps": "steps_after",
    "waits": "waits_after",
    "streams": "streams_on_record",
    "signals": "signals_after",
    "links": "links_after",
    "edges": "edges_after",
    "flows": "flows_after",
    "unique keys": "unique_keys_after",
}
_REMOVALS = {
    "attempts": "remove_lost_attempts",
    "events": "remove_lost_events",
    "steps": "remove_lost_steps",
    "waits": "remove_lost_waits",
    "streams": "remove_lost_streams",
    "signals": "remove_lost_signals",
    "links": "remove_lost_links",
    "edges": "remove_lost_edges",
    "flows": "remove_lost_flows",
    "unique keys": "remove_lost_unique_keys",
}
KINDS = tuple(_PAGES)


def _release_expired(how: str, trusted: LeaseEvidence) -> Repair:
    def repair(ids: Sequence[str]) -> Op[int]:
        yield BEGIN
        given = {"ids": json.dumps(list(ids)), **trusted.belief().leases}
        rows: Rows = yield Statement("hold_lost", given)
        return (yield from release_expired(rows, how, trusted.locked)).healed

    return repair


def _release_overdue(slack: float, decided: DecideFn, trusted: LeaseEvidence) -> Repair:
    def repair(ids: Sequence[str]) -> Op[int]:
        yield BEGIN
        given = {"ids": json.dumps(list(ids)), "late": slack, **trusted.belief().deadlines}
        rows: Rows = yield Statement("hold_overdue", given)
        return (yield from release_overdue(rows, decided)).healed

    return repair


def _guarded_write(statement: str) -> Repair:
    """One guarded write, which returns the rows that it changed."""

    def repair(ids: Sequence[str]) -> Op[int]:
        yield BEGIN
        held: Rows = yield Statement("hold_jobs", {"ids": json.dumps(list(ids))})
        rows: Rows = yield Statement(statement, {"ids": json.dumps([id for (id,) in held])})
        return len(rows)

    return repair


def _end_expired(ids: Sequence[str]) -> Op[int]:
    yield BEGIN
    held: Rows = yield Statement("hold_jobs", {"ids": json.dumps(list(ids))})
    rows: Rows = yield Statement("end_expired", {"ids": json.dumps([id for (id,) in held])})
    yield from notify_dependents([(id, State.CANCELLED) for id, tied in rows if tied])
    return len(rows)


def _remove_ended(keep: float) -> Repair:
    def repair(ids: Sequence[str]) -> Op[int]:
        yield BEGIN
        held: Rows = yield Statement("hold_jobs", {"ids": json.dumps(list(ids))})
        given = {"ids": json.dumps([id for (id,) in held]), "late": keep}
        rows: Rows = yield Statement("remove_ended", given)
        return (yield from delete_dependents_rows(rows))

    return repair


def _silent_workers(keep: float) -> Repair:
    def repair(ids: Sequence[str]) -> Op[int]:
        rows: Rows = yield Statement("prune_workers", {"keep": keep})
        return len({id for (id,) in rows} & set(ids))

    return repair
