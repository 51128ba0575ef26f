"""A directory as a blob store.

    put      write DIR/PLACE/.put-… ── fsync ── rename to DIR/PLACE/NAME ── fsync DIR/PLACE

So a name refers to all of its bytes, or does not exist. Files are readable by their owner only.
Names that Outlast did not generate are refused: none leads out of the directory.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from ...model.blob import parse_name

UNFINISHED_PREFIX = ".put-"  # of files that are not renamed yet
ABANDONED_AFTER_S = 86_400.0  # seconds after which such a file is abandoned


class FileBlobs:
    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self._synced_folders: set[Path] = set()  # directories that survive a machine crash

    def put(self, name: str, data: bytes) -> None:
        path = self._path(name)
        self._make(path.parent)
        handle, unfinished = tempfile.mkstemp(
            prefix=UNFINISHED_PREFIX, dir=path.parent
        )  # mode 0600
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            Path(unfinished).replace(path)
        except BaseException:
            with suppress(OSError):
                Path(unfinished).unlink()
            raise
        _sync(path.parent)

    def get(self, name: str) -> bytes | None:
        path = self._path(name)
        try:
            return path.read_bytes()
        except FileNotFoundError:
            path.parent.stat()  # an unmounted directory is an outage, not a loss
            return None

    def delete(self, name: str) -> None:
        self._path(name).unlink(missing_ok=True)

    def names(self, after: str) -> Iterator[tuple[str, float]]:
        """Ages use the clock of the file system, which may differ from this machine's. Abandoned
        temporary files are removed on the way."""
        namespace, _, last = after.partition("/")
        folder = self.folder / namespace
        if not folder.is_dir():
            return
        now = self._now(folder)
        for name in sorted(os.listdir(folder)):  # noqa: PTH208 - names, of which there may be many
            with suppress(FileNotFoundError):
                path = folder / name
                age = now - path.stat().st_mtime
                if name.startswith(UNFINISHED_PREFIX):
                    if age > ABANDONED_AFTER_S:
                        path.unlink()
                elif name > last:
                    yield f"{namespace}/{name}", age

    def _now(self, folder: Path) -> float:
        with tempfile.TemporaryFile(dir=folder) as probe:
            return os.fstat(probe.fileno()).st_mtime

    def _path(self, name: str) -> Path:
        if parse_name(name) is None:
            raise ValueError(f"{name!r:.200} is not the name of a blob")
        return self.folder / name

    def _make(self, folder: Path) -> None:
        """Create the folder and its missing parents, so that each survives a crash of the machine;
        also one that another process has just created and may not have synced yet."""
        if folder in self._synced_folders and folder.is_dir():
            return
        missing = not folder.is_dir()
        if missing:
            self._make(folder.parent)
            with suppress(FileExistsError):
                folder.mkdir(0o700)
        if missing or self.folder in folder.parents:
            _sync(folder.parent)
        self._synced_folders.add(folder)

    def __repr__(self) -> str:
        return f"file://{self.folder}"


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
