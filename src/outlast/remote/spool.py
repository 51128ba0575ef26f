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
import os
import struct
import threading
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Self

from ..model.errors import InvalidOption

HEAD = struct.Struct(">II")
PLACE = struct.Struct(">QI")
LONGEST_RECORD = 1_000_000
MOST_BYTES = 64 * 1024 * 1024  # on disk; what is said beyond, while the server is away, is dropped
TIDY = 1024 * 1024  # bytes after which a file of which all was sent begins anew


class Record(NamedTuple):
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
        if len(data) > LONGEST_RECORD:
            told = f"is {len(data):,} bytes long; at most {LONGEST_RECORD:,} can be sent"
            raise InvalidOption(option="event", reason=told)
        whole = HEAD.pack(len(data), zlib.crc32(data)) + data
        with self._lock:
            if self.size + len(whole) > MOST_BYTES or not self._write(whole):
                return None
            self.size += len(whole)
            return self.size

    def _write(self, whole: bytes) -> bool:
        """False: the disk is full. What there is of it is written over by the next."""
        try:
            return os.pwrite(self._fd, whole, self.size) == len(whole)
        except OSError:
            return False

    def acknowledge(self, end: int) -> None:
        """The server has everything up to here."""
        with self._lock:
            self.sent = max(self.sent, end)
            if self.sent >= self.size > TIDY:
                # The mark first: between the two, a file that is too short has nothing to send.
                self._write_mark(0)
                os.ftruncate(self._fd, 0)
                self.sent = self.size = 0
            else:
                self._write_mark(self.sent)

    def unsent(self) -> Iterator[Record]:
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

    def _records(self, start: int) -> Iterator[Record]:
        at = start
        while len(head := os.pread(self._fd, HEAD.size, at)) == HEAD.size:
            length, checksum = HEAD.unpack(head)
            if length > LONGEST_RECORD:
                return
            data = os.pread(self._fd, length, at + HEAD.size)
            if len(data) < length or zlib.crc32(data) != checksum:
                return
            at += HEAD.size + length
            yield Record(data, at)

    def _sound_size(self) -> int:
        """Cut what is damaged: nothing after it could be told from noise."""
        size = self.sent
        for record in self._records(self.sent):
            size = record.end
        os.ftruncate(self._fd, size)
        return size

    def _write_mark(self, place: int) -> None:
        """Where that cannot be done, more is sent again than would be needed."""
        packed = struct.pack(">Q", place)
        with suppress(OSError):
            fd = os.open(self._mark, os.O_WRONLY | os.O_CREAT, 0o600)
            try:
                os.pwrite(fd, PLACE.pack(place, zlib.crc32(packed)), 0)
            finally:
                os.close(fd)

    def _read_mark(self) -> int:
        """From the beginning, where the mark cannot be read: what is sent again is kept once."""
        with suppress(OSError, struct.error):
            place, checksum = PLACE.unpack(self._mark.read_bytes())
            if zlib.crc32(struct.pack(">Q", place)) == checksum:
                return min(int(place), os.fstat(self._fd).st_size)
        return 0


def orphans(folder: Path) -> Iterator[Spool]:
    """Files that dead workers left, each of them ours while we look at it."""
    for file in sorted(folder.glob("*.events")):
        with suppress(OSError):  # somebody has it, or it has just gone
            yield Spool(file, new=False)
