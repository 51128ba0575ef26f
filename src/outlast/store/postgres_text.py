"""Statements as PostgreSQL's drivers want them; used with psycopg and with callers' connections."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from ..ops.statement import Statement
from .statements import Query


@cache
def psycopg_text(query: Query) -> str:
    """With `%(name)s` parameters, as psycopg and Django spell them."""
    return query.spelled(lambda name: f"%({name})s", percent="%%")


def parameters(statement: Statement) -> dict[str, Any]:
    """All rows of a statement travel as one JSON parameter."""
    if statement.rows is None:
        return dict(statement.params)
    return {**statement.params, "rows": json.dumps(statement.rows)}
