"""The recipe of the docs for structlog, in a worker that leaves logging to the app."""

from __future__ import annotations

import json

import pytest

from outlast import Outlast, Retry
from tests.cli.conftest import Program
from tests.docs.pages import ROOT, Page


@pytest.mark.kinds("sqlite")
def test_lines_of_the_worker_and_of_handlers_are_structured(ol: Outlast, program: Program) -> None:
    page = Page(ROOT / "docs/how-to/logs.md")
    [source] = [block.text for block in page.python if block.file == "shop.py"]
    (program.folder / "shop.py").write_text(source)

    @ol.task(retry=Retry(max_attempts=1))
    def charge(amount: int) -> None: ...

    job = charge.enqueue(7)
    worker = program.worker("--log-format", "none", "--until-idle", app="shop:ol")
    assert worker.wait() == 1, worker.output()
    lines = [json.loads(line) for line in worker.output().splitlines()]
    own = next(line for line in lines if line["event"] == "charging")
    assert (own["job"], own["attempt"], own["amount"]) == (job.id, 1, 7)
    end = next(line for line in lines if line.get("outcome") == "failed")
    assert (end["job"], end["task"], end["level"]) == (job.id, "charge", "error")
    assert (end["error_type"], end["error_message"]) == ("ConnectionError", "the bank is closed")
    assert sum("stopped after" in line["event"] for line in lines) == 1
