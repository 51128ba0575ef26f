"""Statements in the syntax of PostgreSQL drivers, for psycopg and callers' connections."""

from __future__ import annotations

from functools import cache

from ..statements import Query


@cache
def psycopg_text(query: Query) -> str:
    """With `%(name)s` parameters, as psycopg and Django spell them."""
    return query.for_driver(lambda name: f"%({name})s", percent="%%")
