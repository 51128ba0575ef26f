"""Checkpoints: when the write-ahead log is long, copy it into the database."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from .filesystem import free_bytes

CHECK_WAL_EVERY_COMMITS = 64  # commits
PAGE_BYTES = 4096


class Checkpointer:
    def __init__(self, path: Path, max_pages: int) -> None:
        self.commits = 0
        self.copied = 0  # pages of the log that the last checkpoint copied, if it copied all
        self._path = path
        self._max_pages = max_pages

    def is_due(self) -> bool:
        """Call after each commit: whether the log is too long."""
        self.commits += 1
        return self.commits % CHECK_WAL_EVERY_COMMITS == 0 and self._log_is_long()

    def run(self, writer: sqlite3.Connection, reader: sqlite3.Connection) -> bool:
        """Copy the log. False: another process is writing."""
        try:
            writer.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return False
        try:
            [(_, pages, copied)] = reader.execute("PRAGMA wal_checkpoint(PASSIVE)")
            self.copied = copied if copied == pages else 0
        finally:
            writer.execute("ROLLBACK")
        return True

    def _log_is_long(self) -> bool:
        """Whether the log is longer than the setting, or than a quarter of the free disk space. The
        log is beside the real file, whatever path was used."""
        try:
            log = Path(f"{os.path.realpath(self._path)}-wal").stat().st_size
            return log > min(self._max_pages * PAGE_BYTES, free_bytes(self._path) / 4)
        except OSError:
            return False
