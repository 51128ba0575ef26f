"""Lists of columns that SQL and Python share, generated from the values that rows are read into.

The fields of a value are listed once, in its class; `ol.job_columns` and the like are fragments
with an expression for each, in the order of the fields. So a row can be read by position, which is
the fastest way, and no two lists have to agree.

    ol.job_columns      a `Job`, from the table `j`
    ol.claim_columns    a `Claim`, from the table that is updated or read
    ol.worker_columns   a `WorkerInfo`
    ol.token_columns    a `Token`, from the table `k`
    ol.schedule_columns a `StoredSchedule`, from the table `j`
    ol.new_job_row      the columns of a `NewJob` with their types, for ol.rows
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields

from ..model.api_token import Token
from ..model.claim import CLAIM_COLUMNS
from ..model.job import JOB_COLUMNS, NEW_JOB_COLUMNS, NewJob
from ..model.schedule_state import SCHEDULE_COLUMNS
from ..ops.report import WorkerInfo
from .macros import SqlSource

# On PostgreSQL, a column other than text, number or boolean is read as text, a time as seconds.
_IDS = frozenset({"id", "flow", "team", "last_job"})
_JSON = frozenset({
    "args", "result", "error", "retry", "hooks", "queues", "tasks", "scopes",
    "spec", "job", "code", "changes", "active", "recent",
    "fired_ticks",
})  # fmt: skip
_MOMENTS = frozenset({"lease_until", "last_tick"})  # and names that end with _at

# Fields that are not columns. (In RETURNING, SQLite 3.40 takes every column for NOT NULL, so hooks
# are detected by their text.)
_COMPUTED = {
    "has_dependents": "tied",
    "has_hooks": "COALESCE(CAST(hooks AS text), '') <> ''",
    "now": "ol.epoch(ol.now())",
    "silent_for": "ol.epoch(ol.now()) - ol.epoch(seen_at)",
}
_DRAINING = {"state": "CASE WHEN drain THEN 'draining' ELSE state END"}

_TYPES = {"str": "text", "int": "integer", "float": "double precision", "bool": "boolean"}


def fragments() -> dict[str, SqlSource]:
    """The lists, by name."""
    workers = [field.name for field in fields(WorkerInfo)]
    tokens = [field.name for field in fields(Token)]
    lists = {
        "job_columns": _columns(JOB_COLUMNS, "j."),
        "claim_columns": _columns(CLAIM_COLUMNS),
        "worker_columns": _columns(workers, instead=_COMPUTED | _DRAINING),
        "token_columns": _columns(tokens, "k."),
        "schedule_columns": _columns(SCHEDULE_COLUMNS, "j."),
        "new_job_row": ", ".join(map(_typed, NEW_JOB_COLUMNS)),
    }
    return {name: SqlSource(text, "columns.py") for name, text in lists.items()}


def _columns(names: Iterable[str], of: str = "", instead: dict[str, str] = _COMPUTED) -> str:
    return ", ".join(instead.get(name) or _read(name, f"{of}{name}") for name in names)


def _read(name: str, column: str) -> str:
    if name in _MOMENTS or name.endswith("_at"):
        return f"ol.epoch({column})"
    return f"CAST({column} AS text)" if name in _IDS | _JSON else column


def _typed(name: str) -> str:
    """A field of a `NewJob` as a column of a JSON record."""
    annotation = NewJob.__annotations__[name].removesuffix(" | None")
    return f"{name} {'uuid' if name in _IDS else _TYPES[annotation]}"
