"""What handlers said, on disk until the server has it: the end of a worker loses none of it.

    <folder>/<worker>.events    length, checksum, record; length, checksum, record; …
    <folder>/<worker>.sent      how far the server has it

A worker keeps its file locked. One that nobody locks is a dead worker's, and whoever starts next
sends what is left in it. A record that was cut or damaged ends the file; those before it stand.
Each is sent again until it is acknowledged, and the server keeps it once, by its number.
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
    """Apart for each server: what one of them signed means nothing to another."""
    home = given or Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    name = hashlib.sha256(server.encode()).hexdigest()[:16]
    return (home if given else home / "outlast" / "spool") / name


class Spool:
    """One worker's file. Safe to be used from any thread."""

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
        """Until it is locked it has another name: whoever starts beside us would take it for a dead
        worker's, and remove it."""
        spool = cls(folder / f"{worker}.new", new=True)
        spool.file = spool.file.rename(spool.file.with_suffix(".events"))
        return spool

    def append(self, data: bytes) -> int | None:
        """Keep a record; where it ends. None: there is no room for more."""
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
        """False: the disk is full. What there is of it is written over by the next."""
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
        """What the server may not have, as far as the file is sound."""
        return self._records(self.sent)

    def end(self) -> None:
        """Nobody writes here any more. With all of it sent, it goes."""
        with self._lock:
            if self.sent >= self.size:
                self._remove()
            os.close(self._fd)

    def set_aside(self) -> None:
        """What the server will never take is kept for people to see."""
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
        """Cut what is damaged: nothing after it could be told from noise."""
        size = self.sent
        for record in self._records(self.sent):
            size = record.end
        os.ftruncate(self._fd, size)
        return size

    def _write_mark(self, position: int) -> None:
        """Where that cannot be done, more is sent again than would be needed."""
        packed = struct.pack(">Q", position)
        with suppress(OSError):
            fd = os.open(self._mark, os.O_WRONLY | os.O_CREAT, 0o600)
            try:
                os.pwrite(fd, MARK_FORMAT.pack(position, zlib.crc32(packed)), 0)
            finally:
                os.close(fd)

    def _read_mark(self) -> int:
        """From the beginning, where the mark cannot be read: what is sent again is kept once."""
        with suppress(OSError, struct.error):
            position, checksum = MARK_FORMAT.unpack(self._mark.read_bytes())
            if zlib.crc32(struct.pack(">Q", position)) == checksum:
                return min(int(position), os.fstat(self._fd).st_size)
        return 0


def orphaned_spools(folder: Path) -> Iterator[Spool]:
    """Files that dead workers left, each of them ours while we look at it."""
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
