"""Spool: events on disk until the server has them, so that the end of a worker loses none.

    <folder>/<worker>.events    length, checksum, record; length, checksum, record; …
    <folder>/<worker>.sent      how far the server has it

A worker keeps its file locked. An unlocked file is a dead worker's, and the next worker that starts
sends its rest. A truncated or damaged record ends the file; those before it are valid. Each record
is sent again until it is acknowledged, and the server stores it once, by its number.
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
MAX_SPOOL_BYTES = (
    64 * 1024 * 1024
)  # on disk; what is said beyond, while the server is away, is dropped
TRUNCATE_AFTER_BYTES = 1024 * 1024  # bytes after which a file of which all was sent begins anew


class SpoolRecord(NamedTuple):
    data: bytes
    end: int  # where it ends in the file


def folder_of(server: str, given: Path | None = None) -> Path:
    """One folder per server: tokens of one server mean nothing to another."""
    home = given or Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    name = hashlib.sha256(server.encode()).hexdigest()[:16]
    return (home if given else home / "outlast" / "spool") / name


class Spool:
    """One worker's file. Thread-safe."""

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
        """It has a temporary name until it is locked: a worker that starts concurrently would
        otherwise take it for a dead worker's and remove it."""
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
        """False: the disk is full. The next record overwrites a partial one."""
        try:
            return os.pwrite(self._fd, record, self.size) == len(record)
        except OSError:
            return False

    def acknowledge(self, end: int) -> None:
        """The server has everything up to here."""
        with self._lock:
            self.sent = max(self.sent, end)
            if self.sent >= self.size > TRUNCATE_AFTER_BYTES:
                # The mark first: between the two, a file that is too short has nothing to send.
                self._write_mark(0)
                os.ftruncate(self._fd, 0)
                self.sent = self.size = 0
            else:
                self._write_mark(self.sent)

    def unsent(self) -> Iterator[SpoolRecord]:
        """Records that the server may not have, as far as the file is valid."""
        return self._records(self.sent)

    def end(self) -> None:
        """Close the file; delete it if everything was sent."""
        with self._lock:
            if self.sent >= self.size:
                self._remove()
            os.close(self._fd)

    def set_aside(self) -> None:
        """Keep records that the server refuses for people to inspect."""
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
        """If this fails, more records than needed are sent again."""
        packed = struct.pack(">Q", position)
        with suppress(OSError):
            fd = os.open(self._mark, os.O_WRONLY | os.O_CREAT, 0o600)
            try:
                os.pwrite(fd, MARK_FORMAT.pack(position, zlib.crc32(packed)), 0)
            finally:
                os.close(fd)

    def _read_mark(self) -> int:
        """From the start, if the mark is unreadable: repeated records are stored once."""
        with suppress(OSError, struct.error):
            position, checksum = MARK_FORMAT.unpack(self._mark.read_bytes())
            if zlib.crc32(struct.pack(">Q", position)) == checksum:
                return min(int(position), os.fstat(self._fd).st_size)
        return 0


def orphaned_spools(folder: Path) -> Iterator[Spool]:
    """Files of dead workers, each locked while it is read."""
    for file in sorted(folder.glob("*.events")):
        with suppress(OSError):  # somebody has it, or it has just gone
            yield Spool(file, new=False)


def late_batches(records: Iterable[SpoolRecord]) -> Iterator[tuple[list[str], int]]:
    """Events of dead workers in batches, never all in memory; and where in the file each ends."""
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
