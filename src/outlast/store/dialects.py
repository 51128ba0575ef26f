"""Our words in SQL, and their translation for each database.

    ol.job            a table of ours: "outlast".job or outlast_job
    ol.table_name(t)  that name as text
    ol.now()          the database's clock
    ol.later(s)       a time, seconds from now;  ol.ago(s)  seconds before now
    ol.epoch(t)       a time as seconds since 1970
    ol.moment(x)      the time of so many seconds since 1970
    ol.id(:x)         a parameter that is a job id;  ol.json(:x), ol.boolean(:x) likewise
    ol.each(:x)       the texts of a JSON array;  ol.each_id(:x)  the job ids
    ol.in_ids(x, :y)  whether x is one of the job ids in a JSON array;  ol.not_in_ids(x, :y)
    ol.rows(a text, …)   a statement's rows, passed as one JSON parameter, as a table `t`
    ol.columns(a = x, …)   the columns of an INSERT, each with the expression selected for it
    ol.values(a = x, …)    the same for one row, without a SELECT
    ol.updated(x)     in RETURNING, a column of the updated table `j`, where `t` has the same name
    ol.proof()        the value of a proof of liveness given now
    ol.index(name)    an index of ours where it is created;  ol.old_index(name)  where it is dropped
    ol.place(e)       an event's position for readers
    ol.least(a, b)    the lesser of two numbers;  ol.greatest(a, b)
    ol.whole(x)       a non-negative number without its fraction
    ol.lane_lock(q, l)   the key of the advisory lock of a lane, or ('') of a whole queue
    ol.claim_columns  a fragment, defined by `-- fragment: claim_columns`

On PostgreSQL, `ol.in_ids` becomes an array, so that jobs are looked up one by one, by their keys:
after a purge the statistics may say for a minute that there are hardly any jobs, and a join would
read them all for each id.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from .macros import Macro, SqlSource, expand

POSTGRES, SQLITE = "postgres", "sqlite"
# With the one view, `backlog`. SQLite has no `past`, `past_count` and `backlog`.
TABLES = frozenset(
    "job past past_count attempt event step edge flow worker queue lane duty token session secret"
    " counter statistic wait signal signal_link breaker unique_key admission cancel_request quota"
    " quota_reservation schedule bridge migration migration_step backlog stream".split()
)

SQLITE_NOW = "((julianday('now') - 2440587.5) * 86400.0)"
# Liveness locks are lost with the server's memory. If one of its processes crashes, the memory is
# reset, but the start time stays the same: the reset shows in the start of its statistics.
_POSTGRES_PROOF = (
    "(SELECT concat_ws(' ', extract(epoch FROM pg_postmaster_start_time()),"
    " extract(epoch FROM stats_reset)) FROM pg_stat_bgwriter)"
)


def _as(template: str) -> Macro:
    """A macro with as many arguments as the template has braces."""
    return Macro(template.format, template.count("{}"))


def _recordset(*columns: str) -> str:
    return f"json_to_recordset(CAST(:rows AS json)) AS t ({', '.join(columns)})"


def _json_rows(*columns: str) -> str:
    names = [column.split()[0] for column in ", ".join(columns).split(",")]  # a fragment has many
    found = ", ".join(f"json_extract(value, '$.{name}') AS {name}" for name in names)
    return f"(SELECT {found} FROM json_each(:rows)) AS t"  # noqa: S608 - names from our own files


def _insert_columns(*columns: str) -> str:
    names, values = _names_and_values(columns)
    return f"({names})\nSELECT {values}"


def _insert_values(*columns: str) -> str:
    names, values = _names_and_values(columns)
    return f"({names})\nVALUES ({values})"


def _names_and_values(columns: Sequence[str]) -> tuple[str, str]:
    pairs = [re.fullmatch(r"(\w+)\s*=\s*(.+)", column, re.DOTALL) for column in columns]
    if None in pairs:
        raise ValueError("a column is not written as `name = expression`")
    names, values = zip(*(pair.groups() for pair in pairs if pair), strict=True)
    return ", ".join(names), ", ".join(values)


def _sqlite_epoch(moment: str) -> str:
    """A time as seconds. A column may hold any type; the clock is a number already."""
    return moment if moment == SQLITE_NOW else f"CAST({moment} AS REAL)"


_IDS = "CAST(json_array_elements_text(CAST({} AS json)) AS uuid)"

_MACROS: dict[str, dict[str, Macro]] = {
    POSTGRES: {
        "rows": Macro(_recordset, None),
        "moment": _as("to_timestamp({})"),
        "now": _as("statement_timestamp()"),
        "later": _as("(statement_timestamp() + make_interval(secs => {}))"),
        "ago": _as("(statement_timestamp() - make_interval(secs => {}))"),
        "epoch": _as("date_part('epoch', {})"),
        "proof": _as(_POSTGRES_PROOF),
        "id": _as("CAST({} AS uuid)"),
        "json": _as("CAST({} AS json)"),
        "boolean": _as("CAST({} AS boolean)"),
        "each": _as("json_array_elements_text(CAST({} AS json))"),
        "each_id": _as(_IDS),
        "in_ids": _as(f"{{}} = ANY (ARRAY(SELECT {_IDS}))"),
        "not_in_ids": _as(f"{{}} <> ALL (ARRAY(SELECT {_IDS}))"),
        "least": _as("LEAST({}, {})"),
        "greatest": _as("GREATEST({}, {})"),
        "whole": _as("CAST(floor({} + 0.000001) AS integer)"),
        "place": _as("{}.place"),
        "updated": _as("j.{}"),
    },
    SQLITE: {
        "rows": Macro(_json_rows, None),
        "moment": _as("{}"),
        "now": _as(SQLITE_NOW),
        "later": _as(f"({SQLITE_NOW} + {{}})"),
        "ago": _as(f"({SQLITE_NOW} - ({{}}))"),
        "epoch": Macro(_sqlite_epoch),
        "proof": _as("'file'"),  # a locked one
        "id": _as("{}"),
        "json": _as("{}"),
        "boolean": _as("{}"),
        "each": _as("value FROM json_each({})"),
        "each_id": _as("value FROM json_each({})"),
        "in_ids": _as("{} IN (SELECT value FROM json_each({}))"),
        "not_in_ids": _as("{} NOT IN (SELECT value FROM json_each({}))"),
        "least": _as("min({}, {})"),
        "greatest": _as("max({}, {})"),
        "whole": _as("CAST({} + 0.000001 AS INTEGER)"),
        "updated": _as("{}"),  # RETURNING knows no other names
        "place": _as("{}.seq"),  # one writer at a time: numbers are in order
    },
}


class DialectNamespace:
    """The meaning of our words in one schema of one database. Fragments are expanded when first
    used."""

    def __init__(
        self, dialect: str, schema: str, fragments: Mapping[str, SqlSource] | None = None
    ) -> None:
        self.dialect = dialect
        self.schema = schema
        self.fragments = fragments or {}
        self._expanded: dict[str, str | None] = {}
        self.macros: Mapping[str, Macro] = _MACROS[self.dialect] | {
            "columns": Macro(_insert_columns, None),
            "values": Macro(_insert_values, None),
            "index": Macro(lambda name: index(name, self.dialect, self.schema)),
            "old_index": Macro(lambda name: _named(name, self.dialect, self.schema)),
            "table_name": Macro(lambda name: f"'{table(name, self.dialect, self.schema)}'"),
            "lane_lock": Macro(self._lane_lock, 2),
        }

    def _lane_lock(self, queue: str, lane: str) -> str:
        """The key of a lane's lock. Locks belong to the whole server: the key names the schema."""
        parts = f"'outlast lane', '{self.schema}', CAST({queue} AS text), CAST({lane} AS text)"
        return f"hashtextextended(concat_ws('/', {parts}), 0)"

    def name(self, word: str) -> str | None:
        if word in TABLES:
            return _named(word, self.dialect, self.schema)
        if word not in self._expanded and (source := self.fragments.get(word)) is not None:
            self._expanded[word] = None
            self._expanded[word] = expand(source, self)
        elif self._expanded.get(word, "") is None:
            self.fragments[word].fail(0, f"the fragment {word} holds itself")
        return self._expanded.get(word)


def translate(source: SqlSource | str, dialect: str, schema: str) -> str:
    """Translate our words for one database."""
    source = SqlSource(source) if isinstance(source, str) else source
    return expand(source, DialectNamespace(dialect, schema))


def table(name: str, dialect: str, schema: str) -> str:
    if name not in TABLES:
        raise ValueError(f"{name} is not a table of ours")
    return _named(name, dialect, schema)


def index(name: str, dialect: str, schema: str) -> str:
    """The name of an index. On PostgreSQL it is in its table's schema; on SQLite it shares the
    namespace of tables."""
    return name if dialect == POSTGRES else f"{schema}_{name}"


def _named(name: str, dialect: str, schema: str) -> str:
    return f'"{schema}".{name}' if dialect == POSTGRES else f"{schema}_{name}"
