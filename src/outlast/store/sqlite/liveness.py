"""Proof of liveness on one machine: a file that its worker keeps locked.

The kernel releases the lock when the process ends, in whatever way, so a free lock means that its
worker is dead. Each worker has its own file beside the database; the reclaimer of a dead worker
removes the file.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from ...model.errors import StoreBusy

try:
    import fcntl

    CAN_LOCK = True
except ImportError:  # no such locks on this platform: leases only
    CAN_LOCK = False


def folder(database: Path) -> Path:
    """Beside the real file, whatever path was used: all processes must use the same folder."""
    return Path(f"{os.path.realpath(database)}-workers")


class LivenessFile:
    """One worker's locked file. Held until released: an outage of the database is not a death."""

    def __init__(self, database: Path, worker: str) -> None:
        self._database = database
        self._worker = worker
        self._fd: int | None = None

    @property
    def _file(self) -> Path:
        return folder(self._database) / self._worker

    def acquire(self) -> bool:
        """False if files cannot be locked: then only leases count."""
        if not CAN_LOCK:
            return False
        if self._fd is not None and not self._is_in_place(self._fd):
            self.forget()  # its folder was renamed, or deleted and restored
        if self._fd is None:
            try:
                self._file.parent.mkdir(mode=0o700, exist_ok=True)
                fd = os.open(self._file, os.O_CREAT | os.O_RDWR, 0o600)
            except OSError:
                return False
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                os.close(fd)
                raise StoreBusy(reason="a process tests the lock", locked=True) from error
            except OSError:
                os.close(fd)
                return False
            self._fd = fd
        return True

    def _is_in_place(self, fd: int) -> bool:
        """Whether other processes find the file that this one has locked."""
        try:
            return os.path.samestat(self._file.stat(), os.fstat(fd))
        except OSError:
            return False

    def forget(self) -> None:
        """In a forked child: the lock is the parent's, and must not outlive it here."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def release(self) -> None:
        if self._fd is not None:
            with suppress(OSError):
                self._file.unlink()
            os.close(self._fd)
            self._fd = None


def dead_workers(database: Path, workers: Iterable[str]) -> list[str]:
    """The workers whose file is unlocked or missing."""
    return [worker for worker in workers if _is_free(folder(database) / worker)]


def locked_workers(database: Path, workers: Iterable[str]) -> list[str]:
    """The workers whose file is certainly locked."""
    return [worker for worker in workers if _is_locked(folder(database) / worker)]


def remove_liveness_files(database: Path, workers: Iterable[str]) -> None:
    for worker in workers:
        with suppress(OSError):
            (folder(database) / worker).unlink()


def _is_free(file: Path) -> bool:
    try:
        fd = os.open(file, os.O_RDWR)
    except FileNotFoundError:
        return file.parent.is_dir()  # without the folder, a missing file proves nothing
    except OSError:
        return False  # unknown: the lease decides
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    else:
        return True
    finally:
        os.close(fd)


def _is_locked(file: Path) -> bool:
    """False if unknown: then the lease decides."""
    try:
        fd = os.open(file, os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(fd)
    return False
