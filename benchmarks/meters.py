"""What processes and servers use up, as the kernel and the database count it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.ground import POSTGRES, execute
from benchmarks.serve import Place

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")

STATEMENTS = """
    SELECT sum(calls) FROM pg_stat_statements AS s JOIN pg_database AS d ON d.oid = s.dbid
    WHERE d.datname = current_database()
"""
TRANSACTIONS = """
    SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()
"""
CONNECTIONS = """
    SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()
"""
LOG = "SELECT pg_current_wal_lsn() - '0/0'"


@dataclass(frozen=True)
class Meter:
    """How many statements a server has carried out: by its own count, if it keeps one; else how
    many transactions."""

    name: str
    place: Place

    @classmethod
    def of(cls, place: Place) -> Meter:
        if place.store != POSTGRES:
            return cls("none", place)
        there = "SELECT 1 FROM pg_extension WHERE extname = 'pg_stat_statements'"
        return cls("statements" if execute(place.url, there) else "transactions", place)

    def read(self) -> float | None:
        if self.name == "none":
            return None
        query = STATEMENTS if self.name == "statements" else TRANSACTIONS
        ((count,),) = execute(self.place.url, query)
        return float(count)


def wal_bytes(place: Place) -> float:
    ((position,),) = execute(place.url, LOG)
    return float(position)


def connections(place: Place) -> float:
    """To the whole database, whoever has them."""
    ((count,),) = execute(place.url, CONNECTIONS)
    return float(count)


def cpu_seconds(pids: Iterable[int]) -> float:
    """Of processes and all that they started."""
    return sum(int(stat[11]) + int(stat[12]) for stat in _of_groups(set(pids))) / TICKS


def resident(pids: Iterable[int]) -> float:
    """Megabytes of memory of processes and all that they started."""
    return sum(int(stat[21]) for stat in _of_groups(set(pids))) * PAGE / 1e6


def _of_groups(groups: set[int]) -> Iterator[list[str]]:
    """/proc/PID/stat after the name, of every process in these groups (Linux)."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            stat = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it ended
        if int(stat[2]) in groups:
            yield stat
