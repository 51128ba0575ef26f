"""The outside world of the agent: a shop that pays and mails, and knows a repeated call by its key,
as payment providers do by an idempotency key. A SQLite file of its own, $SHOP_DB."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from typing import NamedTuple

TABLE = """
CREATE TABLE IF NOT EXISTS effect (
    key TEXT PRIMARY KEY, kind TEXT NOT NULL, detail TEXT NOT NULL, calls INTEGER NOT NULL
)
"""
ONCE = """
INSERT INTO effect VALUES (?, ?, ?, 1) ON CONFLICT (key) DO UPDATE SET calls = calls + 1
"""


class Effect(NamedTuple):
    kind: str
    detail: str
    calls: int  # how often it was asked for


def take_effect(key: str, kind: str, detail: str) -> None:
    """Do something once for a key, however often it is asked for."""
    with closing(opened()) as conn, conn:
        conn.execute(ONCE, (key, kind, detail))


def send_mail(*, key: str, to: str, text: str) -> None:
    take_effect(key, f"mail to the {to}", text)


def effects() -> list[Effect]:
    """Everything that was done, in order."""
    with closing(opened()) as conn:
        rows = conn.execute("SELECT kind, detail, calls FROM effect ORDER BY rowid")
        return [Effect(*row) for row in rows]


def opened() -> sqlite3.Connection:
    conn = sqlite3.connect(os.environ.get("SHOP_DB", "shop.db"), timeout=15)
    conn.execute(TABLE)
    return conn
