"""Django's own suite `tests/tasks`, from its source distribution, against our backend.

It is fetched from the package index when the test runs, into a cache folder outside of the
repository. An index that cannot be reached is a failure, with its message, and no skip.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.integrations.django.shop import database_entry
from tests.support import Database
from tests.support.processes import ROOT

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "outlast-tests"
NEWEST = ("python3.14", "python3.13", "python3.12")  # Django 6 needs 3.12
TESTS = 85  # of Django 6.1


def run(*command: object) -> str:
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, check=False, timeout=900
    )
    assert done.returncode == 0, f"{command} failed:\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="session")
def python() -> Path:
    """An interpreter with Django 6: this one, or one of an environment in the cache."""
    import django

    if django.VERSION >= (6, 0):
        return Path(sys.executable)
    candidates = [*NEWEST, *_of_pyenv()]
    found = os.environ.get("OUTLAST_DJANGO6_PYTHON") or next(
        filter(None, map(_python, candidates)), ""
    )
    assert found, f"Django 6 needs one of {NEWEST}, or $OUTLAST_DJANGO6_PYTHON"
    made = CACHE / "django6"
    python = made / "bin" / "python"
    if not python.exists():
        run(found, "-m", "venv", made)
    install = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    run(*install, "django>=6", "-e", f"{ROOT}[postgres]")
    return python


def _of_pyenv() -> list[str]:
    """Those that pyenv has installed, without being on the path."""
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    return [str(found) for name in NEWEST for found in versions.glob(f"*/bin/{name}")]


def _python(name: str) -> str | None:
    """Its path, if it starts: a version manager's stand-in may not."""
    found = shutil.which(name)
    if found is None:
        return None
    started = subprocess.run([found, "--version"], capture_output=True, check=False)
    return found if started.returncode == 0 else None


@pytest.fixture(scope="session")
def suite(python: Path) -> Path:
    """The folder `tests` of the source distribution of this interpreter's Django."""
    version = run(python, "-c", "import django; print(django.get_version())").strip()
    folder = CACHE / f"django-{version}" / "tests"
    if not (folder / "tasks").exists():
        fetch = [python, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", "django"]
        run(*fetch, f"django=={version}", "-d", CACHE)
        with tarfile.open(next(CACHE.glob(f"[dD]jango-{version}.tar.gz"))) as archive:
            archive.extractall(CACHE, filter="data")
    return folder


@pytest.mark.campaign
def test_django_s_own_tests_of_tasks_pass(database: Database, python: Path, suite: Path) -> None:
    """All that apply: upstream/exclusions.py has the others, each with its reason."""
    entry = database_entry(database)
    if database.is_sqlite:
        entry["NAME"] = ":memory:"
    else:
        entry["OPTIONS"] = {}
    done = subprocess.run(
        [python, "-m", "tests.integrations.django.upstream.run", suite],
        env={**os.environ, "SHOP_DATABASE": json.dumps(entry)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    counts = [sum(file.values()) for file in told["files"].values()]
    print(told)
    assert sum(counts) >= TESTS
    assert sum(file.get("excluded", 0) for file in told["files"].values()) == 7
