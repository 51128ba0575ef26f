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

# The commit that made the tables of the first release. (Who changes those names a later one.)
BEFORE = "7437879b3d857882f2fc0588c9fe0cfbdf76dd8b"

CHANGE = """\
-- compatible from: {today}
ALTER TABLE ol.job ADD COLUMN colour text;
CREATE INDEX ol.index(job_colour) ON ol.job (colour) WHERE colour IS NOT NULL;
"""


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


def later(folder: Path) -> Path:
    """The next release, which has a migration more: a folder for the import path."""
    package = folder / "outlast"
    shutil.copytree(ROOT / "src" / "outlast", package, ignore=shutil.ignore_patterns("__pycache__"))
    for dialect in ("postgres", "sqlite"):
        file = package / "store" / "migrations" / f"{latest() + 1:04}.{dialect}.sql"
        file.write_text(CHANGE.format(today=latest()))
    return folder
