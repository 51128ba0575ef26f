"""The words of our SQL that are not SQL: how they are found, and what is said of a mistake."""

from __future__ import annotations

import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from outlast.store.dialects import POSTGRES, SQLITE, DialectNamespace, translate
from outlast.store.macros import MacroError, SqlSource, expand, split
from outlast.store.sql_file import sections
from tests.support.properties import at_any_speed

Rendered = tuple[str, str]  # as it is written, and as SQLite is told


WORDS = st.sampled_from(
    ["SELECT ", "x ", " ", "\n", "1.5 ", "j.id ", ":name ", "::text ", "* ", "old.x "]
)
QUOTED = st.sampled_from(
    ["''", "'a (b, c'", "'ol.now('", "'it''s)'", '"ol.x)"', '"a""(b"', "'--'", "'/*'"]
)
LEAVES = (WORDS | QUOTED).map(lambda text: (text, text))
TABLES = st.sampled_from(["job", "edge"]).map(lambda name: (f"ol.{name} ", f"s_{name} "))
CALLS = st.sampled_from(
    [("ol.id({})", "{}"), ("ol.ago({})", None), ("ol.place({})", "{}.seq"), ("({})", "({})")]
)
AGO = "(((julianday('now') - 2440587.5) * 86400.0) - ({}))"


def _called(call: tuple[str, str | None], inner: Rendered) -> Rendered:
    ours, theirs = call
    written, told = inner
    text = told if ours == "({})" else told.strip()
    return ours.format(written), (theirs or AGO).format(text)


def _joined(parts: list[Rendered]) -> Rendered:
    return "".join(ours for ours, _ in parts), "".join(theirs for _, theirs in parts)


TEXTS = st.recursive(
    LEAVES | TABLES,
    lambda inner: (
        st.builds(_called, CALLS, inner.filter(lambda one: one[1].strip()))
        | st.lists(inner, min_size=1, max_size=5).map(_joined)
    ),
    max_leaves=12,
)


@at_any_speed
@given(TEXTS)
def test_calls_nest_and_what_is_quoted_is_left_alone(text: Rendered) -> None:
    """R181: whatever stands inside, as deep as it may."""
    ours, theirs = text
    assert translate(ours, SQLITE, "s") == theirs


@at_any_speed
@given(TEXTS, st.data())
def test_a_parenthesis_too_few_or_too_many_is_an_error(text: Rendered, data: st.DataObject) -> None:
    ours, _ = text
    outside = re.sub(r"'[^']*'|\"[^\"]*\"", lambda found: "_" * len(found[0]), ours)
    places = [n for n, letter in enumerate(outside) if letter in "()"]
    assume(places)
    place = data.draw(st.sampled_from(places))
    with pytest.raises(MacroError, match=r"^f\.sql:\d+: "):
        expand(SqlSource(ours[:place] + ours[place + 1 :], "f.sql"), DialectNamespace(SQLITE, "s"))
    with pytest.raises(MacroError, match=r"^f\.sql:\d+: "):
        expand(
            SqlSource(ours[:place] + ours[place] + ours[place:], "f.sql"),
            DialectNamespace(SQLITE, "s"),
        )


@at_any_speed
@given(st.text(alphabet="ol.now()rws,;'\"-/* \nab:") | st.text())
def test_any_text_is_expanded_or_refused(text: str) -> None:
    for dialect in (POSTGRES, SQLITE):
        try:
            translate(text, dialect, "s")
        except MacroError as error:
            assert re.match(r"SQL:\d+: .", str(error))


@pytest.mark.parametrize(
    ("dialect", "ours", "theirs"),
    [
        (POSTGRES, "ol.epoch(ol.now())", "date_part('epoch', statement_timestamp())"),
        (SQLITE, "ol.epoch(ol.now())", "((julianday('now') - 2440587.5) * 86400.0)"),
        (SQLITE, "ol.epoch(j.at)", "CAST(j.at AS REAL)"),
        (
            POSTGRES,
            "ol.later(COALESCE(least(t.a, 1), 0))",
            "(statement_timestamp() + make_interval(secs => COALESCE(least(t.a, 1), 0)))",
        ),
        (POSTGRES, "ol.in_ids(j.id, :ids)",
         "j.id = ANY (ARRAY(SELECT CAST(json_array_elements_text(CAST(:ids AS json)) AS uuid)))"),
        (SQLITE, "ol.in_ids(j.id, :ids)", "j.id IN (SELECT value FROM json_each(:ids))"),
        (POSTGRES, "ol.rows(id uuid,\n  name text)",
         "json_to_recordset(CAST(:rows AS json)) AS t (id uuid, name text)"),
        (SQLITE, "ol.rows(id uuid, at real)", "(SELECT json_extract(value, '$.id') AS id,"
         " json_extract(value, '$.at') AS at FROM json_each(:rows)) AS t"),
        (POSTGRES, "INSERT INTO ol.job ol.columns(a = ol.id(:a), b = CASE WHEN x = 1 THEN 2 END)",
         'INSERT INTO "s".job (a, b)\nSELECT CAST(:a AS uuid), CASE WHEN x = 1 THEN 2 END'),
        (POSTGRES, "ol.table_name(job)", "'\"s\".job'"),
        (SQLITE, "a -- it's (ol.nothing(\n, b /* ol.x( */ c", "a  \n, b   c"),
        (SQLITE, "tool.now() control.job", "tool.now() control.job"),
    ],
)  # fmt: skip
def test_words_in_the_words_of_each_database(dialect: str, ours: str, theirs: str) -> None:
    assert translate(ours, dialect, "s") == theirs


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("SELECT 1,\n  ol.sooner(1)", "f.sql:8: there is no macro ol.sooner(…)"),
        ("SELECT\n* FROM ol.jobs", "f.sql:8: ol.jobs is neither a table, a fragment nor a macro"),
        ("SELECT ol.now", "f.sql:7: ol.now is neither"),
        ("\n\nSELECT ol.epoch()", "f.sql:9: ol.epoch(…) takes 1 arguments, not 0"),
        ("SELECT ol.in_ids(id)", "f.sql:7: ol.in_ids(…) takes 2 arguments, not 1"),
        ("SELECT ol.now(1)", "f.sql:7: ol.now(…) takes 0 arguments, not 1"),
        ("SELECT ol.rows()", "f.sql:7: ol.rows(…) takes some arguments, not 0"),
        ("SELECT ol.in_ids(id, )", "f.sql:7: an argument of ol.in_ids(…) is empty"),
        ("SELECT (1,\n  ol.ago((2)\n", "f.sql:8: this parenthesis is not closed"),
        ("SELECT (1)\n) AS x", "f.sql:8: this closing parenthesis has no opening one"),
        ("SELECT 1 AS it's", "f.sql:7: this ' is not closed"),
        ('SELECT "x FROM y', 'f.sql:7: this " is not closed'),
        ("SELECT 1 /* and so on", "f.sql:7: this /* is not closed"),
        (
            "INSERT INTO x\n ol.columns(a = 1, b)",
            "f.sql:8: ol.columns(…): a column is not",
        ),
        ("SELECT ol.bad", "g.sql:40: there is no macro ol.sooner(…)"),
        ("SELECT ol.round", "h.sql:5: the fragment round holds itself"),
    ],
)
def test_a_mistake_is_reported_with_its_file_and_line(text: str, said: str) -> None:
    fragments = {
        "bad": SqlSource("1 +\nol.sooner(2)", "g.sql", 39),
        "round": SqlSource("ol.about", "h.sql", 5),
        "about": SqlSource("ol.round", "h.sql", 9),
    }
    with pytest.raises(MacroError) as caught:
        expand(SqlSource(text, "f.sql", 7), DialectNamespace(SQLITE, "s", fragments))
    assert said in str(caught.value)


@at_any_speed
@given(st.lists(st.sampled_from(["SELECT 1", "SELECT ';' AS x", 'SELECT ";"', "DELETE FROM x"])))
def test_statements_are_split_where_they_end(statements: list[str]) -> None:
    assert split(";\n".join(statements)) == tuple(statements)


FILE = """\
-- What the head says of all.
-- name: one
-- What it is for.
SELECT 1,
-- in between
    2

-- name: two
-- Another,
-- told in two lines.
-- postgres: a reason
-- that goes on
SELECT 'p'
-- sqlite: a reason
SELECT 's'
-- name: three
-- A third.
-- postgres only: a reason
SELECT 3
"""


def test_a_file_has_statements_with_what_each_database_is_told() -> None:
    """R181: once where both agree, twice where they differ, and one that only one of them has."""
    found = {section.name: section for section in sections(FILE, "f.sql")}
    told = {
        (name, dialect): section.source(dialect)
        for name, section in found.items()
        for dialect in (POSTGRES, SQLITE)
    }
    assert found["one"].purpose == "What it is for."
    assert found["two"].purpose == "Another, told in two lines."
    assert (
        told["one", POSTGRES] == told["one", SQLITE] == SqlSource("SELECT 1,\n\n    2", "f.sql", 4)
    )
    assert told["two", POSTGRES] == SqlSource("SELECT 'p'", "f.sql", 13)
    assert told["two", SQLITE] == SqlSource("SELECT 's'", "f.sql", 15)
    assert told["three", POSTGRES] == SqlSource("SELECT 3", "f.sql", 19)
    assert told["three", SQLITE] is None


def test_a_file_may_be_for_one_database_only() -> None:
    text = "-- sqlite only: a reason\n\n-- name: one\n-- What it is for.\nSELECT 1\n"
    (one,) = sections(text, "f.sql")
    assert one.source(SQLITE) == SqlSource("SELECT 1", "f.sql", 5)
    assert one.source(POSTGRES) is None


def test_sql_that_belongs_to_nothing_is_an_error() -> None:
    with pytest.raises(MacroError, match=r"f\.sql:2: SQL above the first"):
        list(sections("-- a comment\nSELECT 1\n", "f.sql"))
    (one,) = sections("-- name: one\n-- postgres: a reason\nSELECT 1\n", "f.sql")
    with pytest.raises(MacroError, match=r"f\.sql:1: one has no SQL for sqlite"):
        one.source(SQLITE)
