"""A real browser: Debian's Chromium, driven by playwright; and axe-core, which looks for barriers.

axe-core comes from the npm registry when the first test wants it, and is kept in the user's cache.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.support.requirements import require_program, skip_or_fail

AXE = "axe-core@4.10.3"
NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = [
    "--no-sandbox",  # it refuses to start as root otherwise, and visits nothing but our own pages
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--font-render-hinting=none",
    "--force-color-profile=srgb",
]


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser. As long as it is open its thread belongs to playwright's own event loop, so that
    nothing in it can call `asyncio.run`."""
    path = next((found for name in NAMES if (found := shutil.which(name))), None)
    if path is None:
        skip_or_fail("chromium is not installed")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()


@cache
def axe() -> str:
    """The source of axe-core."""
    kept = _cache() / f"{AXE}.js"
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        fresh = kept.with_suffix(f".{os.getpid()}")
        fresh.write_bytes(_fetched())
        fresh.replace(kept)
    return kept.read_text("utf-8")


def _cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "outlast-tests"


def _fetched() -> bytes:
    npm = require_program("npm")
    with TemporaryDirectory() as folder:
        packed = subprocess.run(
            [npm, "pack", "--silent", AXE],
            cwd=folder, capture_output=True, text=True, timeout=90, check=False,
        )  # fmt: skip
        if packed.returncode:
            skip_or_fail(f"npm cannot fetch {AXE}: {packed.stderr.strip()[-300:]}")
        archive = (Path(folder) / packed.stdout.split()[-1]).read_bytes()
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        source = files.extractfile("package/axe.min.js")
        assert source is not None
        return source.read()
