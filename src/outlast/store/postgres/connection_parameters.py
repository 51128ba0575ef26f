"""How connections of our own are opened: timeouts, keepalives, and options of the session."""

from __future__ import annotations

from typing import Any, LiteralString

from psycopg import conninfo

from ...model.settings import StoreSettings

KEEPALIVES = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3}  # seconds

# Whatever the server's default: who locks a row, and then counts, must see what came before.
ISOLATION = r"-c default_transaction_isolation=read\ committed"

NEVER_PREPARE = 2**31  # psycopg would prepare whatever was said so often

# What a worker claims with is planned once: along the indexes, whatever the tables held and the
# statistics said at that moment. Other statements would find no good plan so, or keep a bad one: a
# finish that was planned when the table was empty reads all of it.
HOT_PATH_OPTIONS = "-c plan_cache_mode=force_generic_plan " + " ".join(
    f"-c enable_{way}=off" for way in ("seqscan", "bitmapscan", "hashjoin", "mergejoin", "sort")
)

# Ours run for milliseconds. Where statistics are missing, some are expected to cost so much that
# the server would compile them first, which takes seconds on a busy machine.
UNCOMPILED = "-c jit=off"

OVERRIDDEN_OPTIONS = frozenset({"options", "client_encoding"})  # whatever the URL says


def time_limits(settings: StoreSettings) -> dict[str, int]:
    """Milliseconds, by PostgreSQL's names."""
    return {
        "statement_timeout": round(settings.statement_timeout * 1000),
        "lock_timeout": round(settings.lock_timeout * 1000),
        "idle_in_transaction_session_timeout": round(settings.idle_timeout * 1000),
    }


def connection_parameters(
    url: str, settings: StoreSettings, *, pooled: bool, hot_path: bool
) -> dict[str, Any]:
    """What psycopg connects with beside the URL, which wins where it says something itself."""
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
    """Whole seconds for each host: those that do not answer must not use up the deadline
    together. The driver takes no less than two."""
    shared = int(settings.deadline / len(hosts.split(",")))
    return max(2, min(round(settings.connect_timeout), shared))


def keepalive_settings(settings: StoreSettings) -> tuple[LiteralString, dict[str, str]]:
    """The server is to miss us as soon as we would miss it: a session whose client is gone without
    a word would keep its lock for hours. It ignores this on a Unix socket."""
    text: LiteralString = (
        "SELECT set_config('tcp_keepalives_idle', %(keepalives_idle)s, false),"
        " set_config('tcp_keepalives_interval', %(keepalives_interval)s, false),"
        " set_config('tcp_keepalives_count', %(keepalives_count)s, false),"
        " set_config('tcp_user_timeout', %(user_timeout)s, false)"
    )
    given = {**KEEPALIVES, "user_timeout": round(settings.deadline * 1000)}
    return text, {name: str(value) for name, value in given.items()}
