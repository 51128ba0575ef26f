"""An earlier state of the package, from the repository's own history, to run beside today's."""

from __future__ import annotations

import subprocess
import tarfile
from io import BytesIO
from pathlib import Path

from tests.support.processes import ROOT
from tests.support.requirements import require_program, skip_or_fail

# The last commit before owners were part of guards, and flows had keys: schema version 6.
BEFORE = "22ad65d9bef3cc8b736981912e69e01b99bb0fe0"


def earlier(folder: Path, commit: str = BEFORE) -> Path:
    """The package as it was at a commit: a folder for the import path."""
    git = require_program("git")
    found = subprocess.run(
        [git, "-C", str(ROOT), "archive", commit, "src/outlast"], capture_output=True, check=False
    )
    if found.returncode:
        skip_or_fail(f"the history of the repository is not here: {found.stderr.decode().strip()}")
    with tarfile.open(fileobj=BytesIO(found.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder / "src"
