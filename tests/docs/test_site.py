"""The site: it builds without a warning, and every page of docs/index.md is in its navigation."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import ROOT
from tools.docs.site import navigation


def built(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(folder)]
    env = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(
        command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=240, check=False
    )


@pytest.mark.slow
def test_the_site_builds_with_every_link_and_anchor_in_place(tmp_path: Path) -> None:
    done = built(tmp_path / "site")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    api = (tmp_path / "site" / "reference" / "api" / "index.html").read_text()
    assert "Cancel a queued job, or ask a running one to stop." in api
    assert (tmp_path / "site" / "repository" / "deploy" / "docker" / "compose.yaml").is_file()


def test_every_page_is_in_the_navigation() -> None:
    sections = navigation((ROOT / "docs" / "index.md").read_text())
    named = {page for section in sections for pages in section.values()
             for page in ([pages] if isinstance(pages, str) else pages)}  # fmt: skip
    there = {file.relative_to(ROOT / "docs").as_posix() for file in ROOT.glob("docs/**/*.md")}
    # Each decision is linked from the index of decisions.
    assert {page for page in there - named if not page.startswith("decisions/")} == set()
