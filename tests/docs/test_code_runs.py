"""Every Python block of the README and the docs runs, in the order of its page, as printed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT, Page
from tests.support import Postgres, Processes
from tests.support.tiers import slow_but

WITH_CODE = [page for page in map(Page, PAGES) if page.python]
AT_MOST_UNTESTED = 2

# Where a reader begins, and a page on PostgreSQL: the others are slow.
FIRST = {"README.md", "docs/tutorial/first-job.md", "docs/how-to/transactional-enqueue.md"}

every_page = pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.name)
page_by_page = pytest.mark.parametrize(
    "page",
    slow_but([page for page in WITH_CODE if page.name in FIRST], WITH_CODE),
    ids=lambda page: page.name,
)


@pytest.fixture
def surroundings(request: pytest.FixtureRequest, page: Page) -> Iterator[dict[str, str | None]]:
    """What a page finds: no settings, and if it says postgresql://, a database `app` there."""
    clean: dict[str, str | None] = {"OUTLAST_URL": None, "COLUMNS": "100"}
    if "postgresql" not in "".join(block.text for block in page.python):
        yield clean
        return
    server: Postgres = request.getfixturevalue("postgres_server")
    server.execute("CREATE DATABASE app")
    try:
        yield {**clean, "PGPORT": str(server.port), "PGUSER": server.user}
    finally:
        server.execute("DROP DATABASE app WITH (FORCE)")


@page_by_page
def test_the_code_of_every_page_runs_as_printed(
    page: Page, surroundings: dict[str, str | None], processes: Processes, tmp_path: Path
) -> None:
    """R202: what the documents show is what the code does."""
    (tmp_path / "folder").mkdir()
    reader = processes.python(
        "tests.docs.session", page.path, env=surroundings, cwd=tmp_path / "folder"
    )
    reader.succeed(timeout=60)


@every_page
def test_a_block_that_does_not_run_says_why(page: Page) -> None:
    for block in page.blocks:
        if block.language == "python" and not block.runs:
            assert block.reason, f"{page.name}:{block.line}: say in a comment above why not"


def test_hardly_any_block_does_not_run() -> None:
    unrun = [
        f"{page.name}:{block.line}"
        for page in map(Page, PAGES)
        for block in page.blocks
        if block.language in ("python", "py") and not block.runs
    ]
    assert len(unrun) <= AT_MOST_UNTESTED, unrun


def test_the_readme_is_short_and_starts_with_code() -> None:
    readme = Page(ROOT / "README.md")
    assert len(readme.text.splitlines()) <= 150
    assert readme.python[0].line < 30
