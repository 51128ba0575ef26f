"""Proof of life on one machine: a file that its worker keeps locked.

The kernel lets go of the lock when the process ends, however it ends, so a lock that can be had
means that its worker is dead. Each worker has a file of its own beside the database; who buries a
worker removes its file.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

try:
    import fcntl

    CAN_LOCK = True
except ImportError:  # no such locks here: leases alone
    CAN_LOCK = False


def folder(database: Path) -> Path:
    """Beside the file itself, by whatever name it was reached: all must look in the same place."""
    return Path(f"{os.path.realpath(database)}-workers")


class LivenessFile:
    """One worker's locked file. Held until given up: trouble with the database is not a death."""

    def __init__(self, database: Path, worker: str) -> None:
        self._database = database
        self._worker = worker
        self._fd: int | None = None

    @property
    def _file(self) -> Path:
        return folder(self._database) / self._worker

    def acquire(self) -> bool:
        """False where files cannot be locked: then leases alone speak."""
        if not CAN_LOCK:
            return False
        if self._fd is not None and not self._is_in_place(self._fd):
            self.forget()  # its folder was renamed, or deleted and restored, with the database
        if self._fd is None:
            try:
                self._file.parent.mkdir(mode=0o700, exist_ok=True)
                fd = os.open(self._file, os.O_CREAT | os.O_RDWR, 0o600)
            except OSError:
                return False
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:  # somebody is trying it at this moment
                os.close(fd)
                raise
            except OSError:
                os.close(fd)
                return False
            self._fd = fd
        return True

    def _is_in_place(self, fd: int) -> bool:
        """Whether others who look for our file find the one that we have locked."""
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
    """Those whose file nobody holds locked, or is gone."""
    return [worker for worker in workers if _is_free(folder(database) / worker)]


def locked_workers(database: Path, workers: Iterable[str]) -> list[str]:
    """Those whose file somebody holds locked for certain."""
    return [worker for worker in workers if _is_locked(folder(database) / worker)]


def remove_liveness_files(database: Path, workers: Iterable[str]) -> None:
    for worker in workers:
        with suppress(OSError):
            (folder(database) / worker).unlink()


def _is_free(file: Path) -> bool:
    try:
        fd = os.open(file, os.O_RDWR)
    except FileNotFoundError:
        return file.parent.is_dir()  # without the folder, nothing is told
    except OSError:
        return False  # not told: leave it to the lease
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    else:
        return True
    finally:
        os.close(fd)


def _is_locked(file: Path) -> bool:
    """False where nothing is told: then the lease decides."""
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
