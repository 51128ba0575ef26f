"""Spool: events on disk until the server has stored them, so that a crash of the worker loses none.

    <folder>/<worker>.events    length, checksum, record; length, checksum, record; …
    <folder>/<worker>.sent      the position up to which the server has it

A worker keeps its file locked. An unlocked file is a dead worker's, and the next worker that starts
sends the remaining records. A truncated or damaged record ends the file; records before it are
valid. Each record is sent again until it is acknowledged, and the server stores it once, by its
number.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import struct
import threading
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Self

from ..model.errors import InvalidOption
from ..protocol import MAX_CALL_BYTES, MAX_REPORTS, encode_json

RECORD_HEAD = struct.Struct(">II")
MARK_FORMAT = struct.Struct(">QI")
MAX_RECORD_BYTES = 1_000_000
MAX_SPOOL_BYTES = 64 * 1024 * 1024  # on disk; beyond it, events are dropped
TRUNCATE_AFTER_BYTES = 1024 * 1024  # size from which a fully sent file is truncated


class SpoolRecord(NamedTuple):
    data: bytes
    end: int  # the position of its end in the file


def folder_of(server: str, given: Path | None = None) -> Path:
    """The folder of spools, one per server: task tokens are valid for one server."""
    home = given or Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    name = hashlib.sha256(server.encode()).hexdigest()[:16]
    return (home if given else home / "outlast" / "spool") / name


class Spool:
    """The file of one worker. Thread-safe."""

    def __init__(self, file: Path, *, new: bool) -> None:
        self.file = file
        self._lock = threading.Lock()
        self._mark = file.with_suffix(".sent")
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._fd = os.open(file, os.O_RDWR | (os.O_CREAT | os.O_EXCL if new else 0), 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._fd)
            raise
        self.sent = 0 if new else self._read_mark()
        self.size = 0 if new else self._sound_size()

    @classmethod
    def create(cls, folder: Path, worker: str) -> Self:
        """Create a file, with a temporary name until it is locked: otherwise a worker that starts
        concurrently would consider it a dead worker's and remove it."""
        spool = cls(folder / f"{worker}.new", new=True)
        spool.file = spool.file.rename(spool.file.with_suffix(".events"))
        return spool

    def append(self, data: bytes) -> int | None:
        """Write a record; returns its end. None: the spool is full."""
        if len(data) > MAX_RECORD_BYTES:
            reason = f"is {len(data):,} bytes long; at most {MAX_RECORD_BYTES:,} can be sent"
            raise InvalidOption(option="event", reason=reason)
        record = RECORD_HEAD.pack(len(data), zlib.crc32(data)) + data
        with self._lock:
            if self.size + len(record) > MAX_SPOOL_BYTES or not self._write(record):
                return None
            self.size += len(record)
            return self.size

    def _write(self, record: bytes) -> bool:
        """Write a record; returns False if the disk is full. The next record overwrites a partial
        one."""
        try:
            return os.pwrite(self._fd, record, self.size) == len(record)
        except OSError:
            return False

    def acknowledge(self, end: int) -> None:
        """The server has everything up to here."""
        with self._lock:
            self.sent = max(self.sent, end)
            if self.sent >= self.size > TRUNCATE_AFTER_BYTES:
                # The mark first: a crash in between repeats records, and loses none.
                self._write_mark(0)
                os.ftruncate(self._fd, 0)
                self.sent = self.size = 0
            else:
                self._write_mark(self.sent)

    def unsent(self) -> Iterator[SpoolRecord]:
        """The valid records that the server may not have."""
        return self._records(self.sent)

    def end(self) -> None:
        """Close the file; delete it if everything was sent."""
        with self._lock:
            if self.sent >= self.size:
                self._remove()
            os.close(self._fd)

    def set_aside(self) -> None:
        """Keep a file with refused records for inspection."""
        with suppress(OSError):
            self.file.rename(self.file.with_suffix(".refused"))
            self._mark.unlink()

    def _remove(self) -> None:
        for path in (self.file, self._mark):
            with suppress(FileNotFoundError):
                path.unlink()

    def _records(self, start: int) -> Iterator[SpoolRecord]:
        at = start
        while len(head := os.pread(self._fd, RECORD_HEAD.size, at)) == RECORD_HEAD.size:
            length, checksum = RECORD_HEAD.unpack(head)
            if length > MAX_RECORD_BYTES:
                return
            data = os.pread(self._fd, length, at + RECORD_HEAD.size)
            if len(data) < length or zlib.crc32(data) != checksum:
                return
            at += RECORD_HEAD.size + length
            yield SpoolRecord(data, at)

    def _sound_size(self) -> int:
        """Truncate damaged records: nothing after them is readable."""
        size = self.sent
        for record in self._records(self.sent):
            size = record.end
        os.ftruncate(self._fd, size)
        return size

    def _write_mark(self, position: int) -> None:
        """Write the mark. If this fails, more records than needed are sent again."""
        packed = struct.pack(">Q", position)
        with suppress(OSError):
            fd = os.open(self._mark, os.O_WRONLY | os.O_CREAT, 0o600)
            try:
                os.pwrite(fd, MARK_FORMAT.pack(position, zlib.crc32(packed)), 0)
            finally:
                os.close(fd)

    def _read_mark(self) -> int:
        """The position of the mark; 0 if it is unreadable: repeated records are stored once."""
        with suppress(OSError, struct.error):
            position, checksum = MARK_FORMAT.unpack(self._mark.read_bytes())
            if zlib.crc32(struct.pack(">Q", position)) == checksum:
                return min(int(position), os.fstat(self._fd).st_size)
        return 0


def orphaned_spools(folder: Path) -> Iterator[Spool]:
    """Files of dead workers, each locked while it is read."""
    for file in sorted(folder.glob("*.events")):
        with suppress(OSError):  # another worker has locked or removed it
            yield Spool(file, new=False)


def late_batches(records: Iterable[SpoolRecord]) -> Iterator[tuple[list[str], int]]:
    """Events of dead workers in batches, each with its end in the file; not all are in memory."""
    items: list[str] = []
    size = end = 0
    for record in records:
        if items and (len(items) == MAX_REPORTS or size + len(record.data) > MAX_CALL_BYTES):
            yield items, end
            items, size = [], 0
        items.append(encode_json({**json.loads(record.data), "late": True}))
        size, end = size + len(record.data), record.end
    if items:
        yield items, end
