"""Conditions of the database: its configuration, sessions that hold back vacuum, missing locks.
Every check works with an ordinary user's rights; facts hidden from that user are reported as
hidden."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from ...model.humanize import format_duration, pluralize
from ..operation import Op, Pipeline, Rows, Statement
from .findings import Finding

LONG_TRANSACTION_S = 300.0  # seconds; a transaction open for longer keeps dead rows from vacuum
LOCK_GRACE_S = 10.0  # seconds after its start in which a worker acquires its lock
CLOCK_NOTICE_S, CLOCK_PROBLEM_S = 2.0, 30.0  # seconds

# Earlier versions can lose the end of the log if a commit restarts it during a checkpoint.
SAFE_SQLITE = (3, 51, 3)
IN_MEMORY = frozenset({"tmpfs", "ramfs"})

GUARDS = frozenset(
    "job_owned job_owner job_finished job_result job_ready job_last_life job_due job_lease"
    " job_ended job_dead job_expiry job_key".split()
)


def _no_workers(workers: Sequence[str]) -> list[str]:
    return []


@dataclass(frozen=True, slots=True)
class HostFacts:
    """Facts that rows cannot show."""

    known_version: int  # the schema version of this release
    sqlite: tuple[int, ...] | None = None
    pooled: bool = False
    file_system: str | None = None
    clock: float = 0.0  # lower bound of the database clock's lead over this machine; seconds
    confirm_dead: Callable[[Sequence[str]], list[str]] = _no_workers
    confirm_locked: Callable[[Sequence[str]], list[str]] = _no_workers


@dataclass(frozen=True, slots=True)
class DatabaseFacts:
    host: HostFacts
    settings: dict[str, str] = field(default_factory=dict)
    guards: frozenset[str] = GUARDS
    holding: Sequence[tuple[str, str, str, float | None]] = ()
    unlocked: Sequence[tuple[str, str]] = ()


def database_facts(host: HostFacts) -> Op[DatabaseFacts]:
    settings, guards, holding, unlocked = yield Pipeline(
        [
            Statement("server_settings"),
            Statement("job_constraints"),
            Statement("holding_back", {"late": LONG_TRANSACTION_S}),
            Statement("unlocked", {"late": LOCK_GRACE_S}),
        ]
    )
    return DatabaseFacts(
        host,
        dict(settings),
        frozenset(name for (name,) in guards),
        [tuple(row) for row in holding],
        _unlocked(unlocked, host),
    )


def _unlocked(rows: Rows, host: HostFacts) -> list[tuple[str, str]]:
    asked = [id for id, why in rows if why == "ask"]
    free = set(host.confirm_dead(asked)) if asked else set()
    known = [(id, why) for id, why in rows if why != "ask"]
    return known + [(id, "lost") for id in asked if id in free]


def database_findings(found: DatabaseFacts) -> Iterator[Finding]:
    for check in CHECKS:
        yield from check(found)


def not_durable(found: DatabaseFacts) -> Iterator[Finding]:
    for name, what in _DURABLE.items():
        if found.settings.get(name) == "off":
            yield Finding(
                "not-durable",
                f"The server runs with {name} = off: {what}.",
                f"Set {name} = on. Outlast's guarantees cover only data that the server keeps.",
            )


_DURABLE = {
    "fsync": "if its machine stops, committed jobs may be lost and the tables damaged",
    "full_page_writes": "if its machine stops, the tables may be damaged",
    "synchronous_commit": "if it crashes, jobs whose enqueue returned may be lost",
}


def read_only(found: DatabaseFacts) -> Iterator[Finding]:
    standby = found.settings.get("in_recovery") == "true"
    if standby or found.settings.get("transaction_read_only") == "on":
        what = "a standby" if standby else "set to read-only transactions"
        yield Finding(
            "read-only",
            f"This server is {what}: nothing can be enqueued, claimed or finished here.",
            "Give Outlast the address of the primary; with several hosts in the URL, add"
            " target_session_attrs=read-write.",
        )


def unguarded(found: DatabaseFacts) -> Iterator[Finding]:
    if missing := sorted(GUARDS - found.guards):
        yield Finding(
            "unmigrated",
            f"The table of jobs lacks, or does not enforce: {', '.join(missing)}.",
            "The tables were changed manually, or the build of an index was interrupted. Create"
            " the missing objects as in the release's first migration.",
        )


def held_back(found: DatabaseFacts) -> Iterator[Finding]:
    for kind, who, program, seconds in found.holding:
        if kind == "hidden":
            yield Finding(
                "not-visible",
                f"This user may not see the activity of {pluralize(int(who), 'other session')}"
                " of the server.",
                "Whether they hold back vacuum is unknown. GRANT pg_read_all_stats shows it.",
                problem=False,
            )
        else:
            since = f", for {format_duration(float(seconds))}" if seconds is not None else ""
            name = f"pid {who}" + (f", {program!r}" if program else "")
            yield Finding(
                "vacuum-held-back",
                f"A {kind} ({name if kind == 'session' else repr(who)}) keeps dead rows from being"
                f" vacuumed{since}: claims get slower.",
                _END[kind].format(who=who),
            )


_END = {
    "session": "End its transaction, or the session: SELECT pg_terminate_backend({who})",
    "prepared transaction": "COMMIT PREPARED or ROLLBACK PREPARED '{who}'",
    "replication slot": "Let its reader catch up, or SELECT pg_drop_replication_slot('{who}')",
}


def missing_locks(found: DatabaseFacts) -> Iterator[Finding]:
    for id, why in found.unlocked:
        never = why == "never"
        yield Finding(
            "no-liveness-lock",
            f"Worker {id} is alive and {'has never had' if never else 'does not hold'} its"
            " liveness lock.",
            "Its death would be noticed when its leases end, not at once. This is always so"
            " through a pooler: give workers a direct connection."
            if never
            else "It acquires its lock again within seconds. If this persists, keep its log and"
            " restart it.",
            problem=not never,
        )


def clocks(found: DatabaseFacts) -> Iterator[Finding]:
    off = found.host.clock
    if abs(off) > CLOCK_NOTICE_S:
        yield Finding(
            "clock",
            f"The database's clock is {format_duration(abs(off))}"
            f" {'ahead of' if off > 0 else 'behind'} this"
            " machine's.",
            "Leases, delays and timeouts use the database's clock and are right. Times given by"
            " this machine (at=, expires=) and those in its logs are off: set its clock.",
            problem=abs(off) > CLOCK_PROBLEM_S,
        )


def old_sqlite(found: DatabaseFacts) -> Iterator[Finding]:
    version = found.host.sqlite
    if version is not None and version < SAFE_SQLITE:
        yield Finding(
            "wal-reset",
            f"SQLite {'.'.join(map(str, version))} has the WAL-reset race: a checkpoint beside a"
            " commit can lose the end of the log.",
            "Outlast's own checkpoints are safe. Let no other program checkpoint this file,"
            f" or use SQLite {'.'.join(map(str, SAFE_SQLITE))} or newer.",
            problem=False,
        )


def file_system(found: DatabaseFacts) -> Iterator[Finding]:
    if found.host.sqlite is None:
        return
    kind = found.host.file_system
    if kind is None or kind in IN_MEMORY:
        yield Finding(
            "file-system",
            f"The file is on {kind}: in memory, and lost when this machine stops."
            if kind
            else "The kind of the file's file system is unknown.",
            "Keep it on a local disk; never on a network file system, whose locks SQLite cannot"
            " trust.",
            problem=False,
        )


def pooled_connection(found: DatabaseFacts) -> Iterator[Finding]:
    if found.host.pooled:
        yield Finding(
            "pooled",
            "The connection goes through a pooler that shares sessions, so workers hold no"
            " liveness lock.",
            "This works by polling instead of notifications, and a dead worker is noticed when its"
            " lease ends. Give workers a direct connection to make both faster.",
            problem=False,
        )


CHECKS: tuple[Callable[[DatabaseFacts], Iterator[Finding]], ...] = (
    read_only,
    not_durable,
    unguarded,
    held_back,
    missing_locks,
    clocks,
    old_sqlite,
    file_system,
    pooled_connection,
)
