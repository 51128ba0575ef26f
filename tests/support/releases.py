"""An earlier state of the package and a later one, to run side by side on one database."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
from io import BytesIO
from pathlib import Path

from outlast.store.schema import latest
from tests.support.processes import ROOT
from tests.support.requirements import require_program, skip_or_fail

MIGRATIONS = "src/outlast/store/migrations"

CHANGE = """\
-- compatible from: {today}
ALTER TABLE ol.job ADD COLUMN colour text;
CREATE INDEX ol.index(job_colour) ON ol.job (colour) WHERE colour IS NOT NULL;
"""


def earlier(folder: Path) -> Path:
    """The package as it was when its tables last changed: a folder for the import path."""
    commit = _git("log", "-1", "--format=%H", "--", MIGRATIONS).decode().strip()
    with tarfile.open(fileobj=BytesIO(_git("archive", commit, "src/outlast"))) as archive:
        archive.extractall(folder, filter="data")
    return folder / "src"


def _git(*words: str) -> bytes:
    git = require_program("git")
    found = subprocess.run([git, "-C", str(ROOT), *words], capture_output=True, check=False)
    if found.returncode or not found.stdout:
        skip_or_fail(f"the history of the repository is not here: {found.stderr.decode().strip()}")
    return found.stdout


def later(folder: Path) -> Path:
    """The next release, which has a migration more: a folder for the import path."""
    package = folder / "outlast"
    shutil.copytree(ROOT / "src" / "outlast", package, ignore=shutil.ignore_patterns("__pycache__"))
    for dialect in ("postgres", "sqlite"):
        file = package / "store" / "migrations" / f"{latest() + 1:04}.{dialect}.sql"
        file.write_text(CHANGE.format(today=latest()))
    return folder
