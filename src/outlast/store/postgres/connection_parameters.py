"""Parameters of our own connections: timeouts, keepalives, and session options."""

from __future__ import annotations

from typing import LiteralString

from psycopg import conninfo

from ...model.settings import StoreSettings

KEEPALIVES = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3}  # seconds

# Overrides the server's default: a count after a lock must see earlier commits.
ISOLATION = r"-c default_transaction_isolation=read\ committed"

NEVER_PREPARE = 2**31  # the number of executions after which psycopg prepares a statement

# A worker's claim statements are planned once, along the indexes, whatever the tables and their
# statistics contained then. For other statements this would find no good plan, or keep a bad one: a
# finish planned with an empty table reads all of it.
HOT_PATH_OPTIONS = "-c plan_cache_mode=force_generic_plan " + " ".join(
    f"-c enable_{way}=off" for way in ("seqscan", "bitmapscan", "hashjoin", "mergejoin", "sort")
)

# Our statements run for milliseconds. Without statistics, the estimated cost of some is so high
# that the server would compile them first, which takes seconds on a busy machine.
UNCOMPILED = "-c jit=off"

OVERRIDDEN_OPTIONS = frozenset({"options", "client_encoding"})  # even if the URL has them


def time_limits(settings: StoreSettings) -> dict[str, int]:
    """Timeouts in milliseconds, by PostgreSQL's names."""
    return {
        "statement_timeout": round(settings.statement_timeout * 1000),
        "lock_timeout": round(settings.lock_timeout * 1000),
        "idle_in_transaction_session_timeout": round(settings.idle_timeout * 1000),
    }


def connection_parameters(
    url: str, settings: StoreSettings, *, pooled: bool, hot_path: bool
) -> dict[str, object]:
    """Parameters for psycopg beside the URL, which takes precedence."""
    known = conninfo.conninfo_to_dict(url)
    given: dict[str, object] = {
        "connect_timeout": _connect_timeout_s(settings, str(known.get("host") or "")),
        "application_name": "outlast",
        "client_encoding": "UTF8",
        **KEEPALIVES,
        "tcp_user_timeout": round(settings.deadline * 1000),
    }
    if not pooled:
        limits = " ".join(f"-c {name}={value}" for name, value in time_limits(settings).items())
        steady = HOT_PATH_OPTIONS if hot_path else ""
        ours = f"{limits} {ISOLATION} {UNCOMPILED} {steady}"
        given["options"] = f"{known.get('options') or ''} {ours}".strip()
    return {
        **{k: v for k, v in given.items() if k not in known or k in OVERRIDDEN_OPTIONS},
        "autocommit": True,
        "prepare_threshold": None if pooled else NEVER_PREPARE,
    }


def _connect_timeout_s(settings: StoreSettings, hosts: str) -> int:
    """Whole seconds for each host: together, unresponsive ones must not use up the deadline. The
    driver's minimum is two."""
    shared = int(settings.deadline / len(hosts.split(",")))
    return max(2, min(round(settings.connect_timeout), shared))


def keepalive_settings(settings: StoreSettings) -> tuple[LiteralString, dict[str, str]]:
    """Settings with which the server detects a vanished client as fast as the client a vanished
    server: its session would keep its lock for hours. Ignored on a Unix socket."""
    text: LiteralString = (
        "SELECT set_config('tcp_keepalives_idle', %(keepalives_idle)s, false),"
        " set_config('tcp_keepalives_interval', %(keepalives_interval)s, false),"
        " set_config('tcp_keepalives_count', %(keepalives_count)s, false),"
        " set_config('tcp_user_timeout', %(user_timeout)s, false)"
    )
    given = {**KEEPALIVES, "user_timeout": round(settings.deadline * 1000)}
    return text, {name: str(value) for name, value in given.items()}
