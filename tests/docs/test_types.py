"""The Python blocks of the README and the docs pass mypy and pyright, as a reader's own would."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT, Page

# Names may be bound anew, as at a prompt: blocks of a page share one scope.
MYPY = "--config-file= --python-version=3.11 --allow-redefinition-new --local-partial-types".split()
MYPY += ["--check-untyped-defs", "--ignore-missing-imports", "--explicit-package-bases"]
# Django has no types of its own, and pyright infers what `atomic()` may be from both its uses.
NOT_OURS = "(...) -> object"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A folder for each page with Python: its files, and the rest of its blocks as one session."""
    parent = tmp_path_factory.mktemp("pages")
    return [folder for page in map(Page, PAGES) if (folder := written(page, parent))]


def test_the_code_of_every_page_passes_mypy(folders: list[Path], tmp_path: Path) -> None:
    cache = f"--cache-dir={tmp_path}"
    # One run per page: each has an `app` or `main` of its own, which the others must not import.
    done = [run(folder, "mypy", *MYPY, cache, *names(folder)) for folder in folders]
    assert [result.stdout for result in done if result.returncode] == []


def test_the_code_of_every_page_passes_pyright(folders: list[Path], tmp_path: Path) -> None:
    settings = {
        "include": [str(folder) for folder in folders],
        "executionEnvironments": [{"root": str(folder)} for folder in folders],
        "pythonVersion": "3.11",
        "typeCheckingMode": "standard",
        "extraPaths": [str(ROOT / "src")],
    }
    project = tmp_path / "pyright.json"
    project.write_text(json.dumps(settings))
    chosen = ("--project", project, "--pythonpath", sys.executable, "--outputjson")
    said = json.loads(run(tmp_path, "basedpyright", *chosen).stdout)
    assert said["summary"]["filesAnalyzed"] >= len(folders)
    found = [
        f"{Path(row['file']).parent.name}:{row['range']['start']['line'] + 1}: {row['message']}"
        for row in said["generalDiagnostics"]
        if row["severity"] == "error" and NOT_OURS not in row["message"]
    ]
    assert found == []


def written(page: Page, parent: Path) -> Path | None:
    """Each block at its lines of the page; those that are no files within a coroutine function,
    as they may say `await`."""
    if not page.python:
        return None
    folder = parent / page.name.replace("/", ".")
    session = [""] * len(page.text.splitlines())
    for block in page.python:
        lines = block.text.splitlines()
        if block.file:
            path = folder / block.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("\n" * (block.line - 1) + block.text)
        else:
            indented = [f"    {line}" if line else "" for line in lines]
            session[block.line - 1 : block.line - 1 + len(lines)] = indented
    if any(session):
        folder.mkdir(exist_ok=True)
        (folder / "session.py").write_text("\n".join(["async def page() -> None:", *session[1:]]))
    return folder


def names(folder: Path) -> list[str]:
    return [str(path.relative_to(folder)) for path in sorted(folder.rglob("*.py"))]


def run(folder: Path, module: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", module, *map(str, arguments)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
