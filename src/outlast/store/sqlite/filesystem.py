"""File systems that may hold a SQLite file. Network file systems are refused: their locks are
unreliable, and a database without working locks is lost."""

from __future__ import annotations

import os
import re
from pathlib import Path

from ...model.errors import Unsupported

NETWORK = frozenset(
    "nfs nfs4 cifs smb smb2 smb3 smbfs 9p afs ceph glusterfs lustre beegfs gpfs ocfs2 gfs2 davfs"
    " fuse.sshfs fuse.glusterfs fuse.s3fs fuse.rclone fuse.gcsfuse fuse.cephfs fuse.smbnet".split()
)
MOUNTS = Path("/proc/self/mountinfo")


def refuse_network_file_system(path: Path, mounts: Path = MOUNTS) -> None:
    kind = file_system(path, mounts)
    if kind in NETWORK:
        raise Unsupported(
            reason=f"{path} is on a network file system ({kind}), where SQLite's locks cannot be"
            " trusted: use a local disk, or PostgreSQL"
        )


def free_bytes(path: Path) -> float:
    """The bytes that an ordinary user can still write there."""
    if not hasattr(os, "statvfs"):
        return float("inf")
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize


def file_system(path: Path, mounts: Path = MOUNTS) -> str | None:
    """The type of the file system of a path; None if unknown."""
    try:
        lines = mounts.read_text("utf-8", "surrogateescape").splitlines()
    except OSError:
        return None
    try:
        resolved = path.resolve()  # once: a machine can have hundreds of mounts
    except RuntimeError:  # a loop of symbolic links, which opening the file reports
        return None
    inside = [
        (len(point), kind) for point, kind in map(_mount, lines) if resolved.is_relative_to(point)
    ]
    # The deepest mount point counts; of two mounts at one point, the later one hides the earlier.
    return (
        max(enumerate(inside), key=lambda found: (found[1][0], found[0]))[1][1] if inside else None
    )


def _mount(line: str) -> tuple[str, str]:
    """Mount point and kind from a line of mountinfo, where spaces are written as \\040."""
    before, _, after = line.partition(" - ")
    point = re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), before.split(" ")[4])
    return point, after.split(" ")[0]
