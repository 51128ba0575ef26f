"""Free memory of the machine, or of the container if that has less.

A worker that is short of memory waits instead of claiming.
"""

from __future__ import annotations

import math
from pathlib import Path

MEGABYTE = 1024 * 1024
MEMINFO = Path("/proc/meminfo")
CGROUP = Path("/sys/fs/cgroup")


def free_megabytes(machine: Path = MEMINFO, container: Path = CGROUP) -> float:
    """Free memory in megabytes; infinite if the system does not report it."""
    return min(_machine(machine), _container(container))


def _machine(path: Path) -> float:
    try:
        for line in path.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024 / MEGABYTE
    except (OSError, ValueError, IndexError):
        pass
    return math.inf


def _container(folder: Path) -> float:
    try:
        limit = (folder / "memory.max").read_text().strip()
        if limit == "max":
            return math.inf
        used = int((folder / "memory.current").read_text())
        return (int(limit) - used) / MEGABYTE
    except (OSError, ValueError):
        return math.inf
