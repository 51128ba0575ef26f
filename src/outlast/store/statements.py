"""The SQL, by name, in the words of each database.

Statements live in `sql/*.sql`. What both databases accept stands once; what differs stands twice,
behind a `-- postgres:` and a `-- sqlite:` line that says why; what only one of them can do, behind
a `-- postgres only:`. A few words are translated:

    ol.job            a table of ours: "outlast".job or outlast_job
    ol.now()          the database's clock
    ol.later(s)       that many seconds from now;  ol.ago(s)  before now
    ol.epoch(t)       a moment as seconds since 1970
    ol.id(:x)         a parameter that is a job id;  ol.json(:x), ol.boolean(:x) likewise
    ol.moment(x)      the moment that is so many seconds after 1970
    ol.each(:x)       the texts of a JSON array;  ol.each_id(:x)  the job ids
    ol.rows(a text, …)  a statement's rows, which travel as one JSON parameter, as a table `t`
    ol.proof()        what a proof of life says that was given now
    ol.index(name)    an index of ours where it is made;  ol.old_index(name)  where it is dropped
    ol.place(e)       where an event stands for those who read them
    ol.claim_columns  a fragment, defined by `-- fragment: claim_columns`

Parameters are `:name` here, and become whatever the driver wants. Jobs that are IN (SELECT
ol.each_id(:x)) are looked up one by one on PostgreSQL, by their keys, as an array is: after a purge
its statistics may say for a minute that there are hardly any jobs, and then it would read them all
for each id.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files

POSTGRES, SQLITE = "postgres", "sqlite"
TABLES = frozenset(
    "job attempt event step edge flow worker queue duty token session secret counter statistic"
    " breaker migration".split()
)

_SCHEMA = "\0"  # stands in for a schema's name; no text of SQL can hold it
_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)\b")
_SQLITE_NOW = "((julianday('now') - 2440587.5) * 86400.0)"
# Locks go with the server's memory. When one of its processes crashes, that is made anew, and the
# time of its start stays the same: what tells is that its statistics begin again.
_POSTGRES_PROOF = (
    "(SELECT concat_ws(' ', extract(epoch FROM pg_postmaster_start_time()),"
    " extract(epoch FROM stats_reset)) FROM pg_stat_bgwriter)"
)


def _json_rows(columns: str) -> str:
    names = [column.split()[0] for column in columns.split(",")]
    found = ", ".join(f"json_extract(value, '$.{name}') AS {name}" for name in names)
    return f"(SELECT {found} FROM json_each(:rows)) AS t"  # noqa: S608 - names from our own files


_OTHER = {POSTGRES: SQLITE, SQLITE: POSTGRES}

_WORDS: dict[str, list[tuple[str, str | Callable[[re.Match[str]], str]]]] = {
    POSTGRES: [
        (r"ol\.rows\(([^()]*)\)", r"json_to_recordset(CAST(:rows AS json)) AS t (\1)"),
        (r"ol\.moment\(([^()]*)\)", r"to_timestamp(\1)"),
        (r"ol\.epoch\(ol\.now\(\)\)", "date_part('epoch', statement_timestamp())"),
        (r"ol\.now\(\)", "statement_timestamp()"),
        (r"ol\.later\((COALESCE\([^()]*\)|[^()]*)\)",
         r"(statement_timestamp() + make_interval(secs => \1))"),
        (r"ol\.ago\(([^()]*)\)", r"(statement_timestamp() - make_interval(secs => \1))"),
        (r"ol\.epoch\(([^()]*)\)", r"date_part('epoch', \1)"),
        (r"ol\.proof\(\)", _POSTGRES_PROOF),
        (r"ol\.id\(([^()]*)\)", r"CAST(\1 AS uuid)"),
        (r"ol\.json\(([^()]*)\)", r"CAST(\1 AS json)"),
        (r"ol\.boolean\(([^()]*)\)", r"CAST(\1 AS boolean)"),
        (r"ol\.each\(([^()]*)\)", r"json_array_elements_text(CAST(\1 AS json))"),
        (r"ol\.place\((\w+)\)", r"\1.place"),
        (r"\bNOT IN \(SELECT (ol\.each_id\([^()]*\))\)", r"<> ALL (ARRAY(SELECT \1))"),
        (r"\bIN \(SELECT (ol\.each_id\([^()]*\))\)", r"= ANY (ARRAY(SELECT \1))"),
        (r"ol\.each_id\(([^()]*)\)", r"CAST(json_array_elements_text(CAST(\1 AS json)) AS uuid)"),
    ],
    SQLITE: [
        (r"ol\.rows\(([^()]*)\)", lambda found: _json_rows(found[1])),
        (r"(?s)\bRETURNING\b.*", lambda found: re.sub(r"\b[a-z]\.", "", found[0])),  # bare names
        (r"ol\.epoch\(ol\.now\(\)\)", _SQLITE_NOW),
        (r"ol\.now\(\)", _SQLITE_NOW),
        (r"ol\.later\((COALESCE\([^()]*\)|[^()]*)\)", rf"({_SQLITE_NOW} + \1)"),
        (r"ol\.ago\(([^()]*)\)", rf"({_SQLITE_NOW} - (\1))"),
        (r"ol\.epoch\(([^()]*)\)", r"CAST(\1 AS REAL)"),  # a column holds whatever was put in
        (r"ol\.proof\(\)", "'file'"),  # a locked one
        (r"ol\.(?:id|json|boolean|moment)\(([^()]*)\)", r"\1"),
        (r"ol\.(?:each|each_id)\(([^()]*)\)", r"value FROM json_each(\1)"),
        (r"ol\.place\((\w+)\)", r"\1.seq"),  # one writer at a time: numbers are in order
    ],
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Query:
    """One statement for one database, its tables named, its parameters still `:name`."""

    name: str
    purpose: str
    sql: str
    parameters: tuple[str, ...]
    reads: bool

    @property
    def answers(self) -> bool:
        """Whether rows come back."""
        return self.reads or self.sql.startswith("SELECT") or "RETURNING" in self.sql

    def spelled(self, mark: Callable[[str], str], *, percent: str = "%") -> str:
        """The text with each parameter spelled for a driver."""
        return _PARAMETER.sub(lambda found: mark(found[1]), self.sql.replace("%", percent))


@cache
def queries(dialect: str, schema: str) -> dict[str, Query]:
    """Every statement of one database, by name."""
    return {
        name: replace(query, sql=query.sql.replace(_SCHEMA, schema))
        for name, query in _translated(dialect).items()
    }


@cache
def _translated(dialect: str) -> dict[str, Query]:
    """Every statement, for a schema that is yet to be named: that is the same work for all."""
    fragments: dict[str, str] = {}
    bodies: dict[str, tuple[str, str]] = {}
    for file in sorted(files(__package__).joinpath("sql").iterdir(), key=lambda f: f.name):
        for kind, name, text in _sections(file.read_text("utf-8")):
            if f"-- {_OTHER[dialect]} only:" in text:
                continue
            purpose, body = _choose(text, dialect)
            if kind == "fragment":
                fragments[name] = body
            elif name in bodies:
                raise ValueError(f"the statement {name} is defined twice")
            else:
                bodies[name] = (purpose, body)
    return {
        name: _query(name, purpose, translate(body, dialect, _SCHEMA, fragments))
        for name, (purpose, body) in bodies.items()
    }


def translate(text: str, dialect: str, schema: str, fragments: dict[str, str] | None = None) -> str:
    """Our words in the words of one database."""
    if fragments:
        names = re.compile(rf"\bol\.({'|'.join(fragments)})\b")
        while names.search(text):  # a fragment may hold others
            text = names.sub(lambda found: fragments[found[1]], text)
    for pattern, replacement in _WORDS[dialect]:
        text = re.sub(pattern, replacement, text)
    text = re.sub(r"\bol\.index\((\w+)\)", lambda m: index(m[1], dialect, schema), text)
    text = re.sub(r"\bol\.old_index\((\w+)\)", lambda m: _named(m[1], dialect, schema), text)
    return re.sub(r"\bol\.([a-z]+)\b(?!\()", lambda m: table(m[1], dialect, schema), text)


def table(name: str, dialect: str, schema: str) -> str:
    if name not in TABLES:
        raise ValueError(f"ol.{name} is neither a table nor a word of ours")
    return _named(name, dialect, schema)


def _named(name: str, dialect: str, schema: str) -> str:
    return f'"{schema}".{name}' if dialect == POSTGRES else f"{schema}_{name}"


def index(name: str, dialect: str, schema: str) -> str:
    """On PostgreSQL an index is where its table is; on SQLite it shares the tables' names."""
    return name if dialect == POSTGRES else f"{schema}_{name}"


def _sections(text: str) -> Iterator[tuple[str, str, str]]:
    parts = re.split(r"^-- (name|fragment): (\w+)\n", text, flags=re.M)
    yield from zip(parts[1::3], parts[2::3], parts[3::3], strict=True)


def _choose(text: str, dialect: str) -> tuple[str, str]:
    """The purpose, and the body meant for this database."""
    head, *variants = re.split(r"^-- (postgres|sqlite): ", text, flags=re.M)
    if variants:
        text = dict(zip(variants[::2], variants[1::2], strict=True))[dialect]
        text = "-- " + text  # what is left of the reason
    purpose = re.search(r"^-- (.*)$", head, flags=re.M)
    body = re.sub(r"^--.*\n", "", text, flags=re.M)
    return purpose[1] if purpose else "", body.strip()


def _query(name: str, purpose: str, sql: str) -> Query:
    parameters = tuple(dict.fromkeys(_PARAMETER.findall(sql)))
    reads = not re.search(r"\b(INSERT|UPDATE|DELETE|pg_notify)\b", sql)
    return Query(name, purpose, sql, parameters, reads)
