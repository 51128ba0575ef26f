"""Under which conditions it was measured: without them, a figure says nothing."""

from __future__ import annotations

import os
import platform
import re
import sqlite3
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.ground import Ground, execute, say
from outlast.version import VERSION

if TYPE_CHECKING:
    from benchmarks.rounds import Plan

SETTINGS = (
    "SELECT name, current_setting(name) FROM pg_settings WHERE name IN ('server_version', 'fsync',"
    " 'synchronous_commit', 'full_page_writes', 'wal_sync_method', 'shared_buffers',"
    " 'max_wal_size', 'wal_level', 'autovacuum', 'jit') ORDER BY name"
)


def of(ground: Ground, plan: Plan) -> dict[str, Any]:
    return {
        "measured_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "outlast": VERSION,
        "rounds": plan.rounds,
        "concurrency": plan.concurrency,
        "machine": machine(),
        "postgres": dict(execute(ground.postgres, SETTINGS)) if ground.postgres else None,
        "sqlite": {
            "version": sqlite3.sqlite_version,
            "journal_mode": "wal",
            "synchronous": "full",
            "file_system": file_system(ground.folder),
        },
        "redis": redis(ground.redis) if ground.redis else None,
    }


def machine() -> dict[str, Any]:
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "system": f"{platform.system()} {platform.release().partition('-')[0]}",
        "python": platform.python_version(),
        "load_before": round(os.getloadavg()[0], 2),
    }


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor() or platform.machine()
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.M)
    return found[1] if found else platform.machine()


def file_system(folder: Path) -> str:
    """Of the mount that is nearest (Linux): on one in memory, syncing costs nothing."""
    try:
        mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    except OSError:
        return "unknown"
    above = [str(path) for path in (folder.absolute(), *folder.absolute().parents)]
    under = [(above.index(m[1]), m[2]) for m in mounts if m[1] in above]
    return min(under)[1] if under else "unknown"


def redis(url: str) -> dict[str, str]:
    text = say(url, "INFO server", "CONFIG GET append*")
    found = {
        "version": re.search(r"redis_version:(\S+)", text),
        "appendonly": re.search(r"appendonly\r\n\$\d+\r\n(\w+)", text),
        "appendfsync": re.search(r"appendfsync\r\n\$\d+\r\n(\w+)", text),
    }
    return {name: match[1] for name, match in found.items() if match}
