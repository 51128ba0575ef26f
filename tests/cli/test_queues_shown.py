"""`outlast queues`, `pause` and `job` say what an operator would otherwise have to guess."""

from __future__ import annotations

import pytest

from outlast import Context, Outlast
from outlast.testing import drain
from tests.cli.conftest import Commands

pytestmark = pytest.mark.kinds("sqlite")


def test_a_queue_is_listed_after_its_jobs_ran_and_says_that_no_worker_serves_it(
    run: Commands, ol: Outlast
) -> None:
    @ol.task
    def work() -> None: ...

    assert run("queues").out == "No queues yet.\n"
    work.using(queue="mail").enqueue()
    drain(ol)
    line = next(line for line in run("queues").out.splitlines() if line.startswith("mail"))
    assert "no worker" in line


async def test_a_queue_with_a_worker_does_not_say_so(run: Commands, ol: Outlast) -> None:
    from tests.support import aeventually

    @ol.task
    def work() -> None: ...

    await work.aenqueue()
    async with ol.worker():
        await aeventually(ol.workers)
        line = next(line for line in run("queues").out.splitlines() if line.startswith("default"))
    assert "no worker" not in line
    await ol.aclose()


def test_pausing_a_queue_that_nobody_knows_says_so(run: Commands, ol: Outlast) -> None:
    @ol.task
    def work() -> None: ...

    work.using(queue="mail").enqueue()
    assert "Note" not in run("pause", "mail").out
    said = run("pause", "mial").out
    assert "mial is paused" in said
    assert "no job and no setting has named the queue mial so far. Did you mean mail?" in said
    assert "Note" not in run("pause", "mial").out  # it is known now


def test_progress_is_one_line_with_a_bar(run: Commands, ol: Outlast) -> None:
    @ol.task
    def load(ctx: Context) -> None:
        for done in range(1, 81):
            ctx.progress(done, 160, "rows")
        ctx.log("loaded")

    job = load.enqueue()
    drain(ol)
    lines = run("job", job.id).out.splitlines()
    line, event = [line for line in lines if "rows" in line]
    assert "done=80, total=160, note=rows" in event
    assert line.startswith("progress    ██████████░░░░░░░░░░ 50%, 80 of 160, rows (attempt 1,")
    assert any("loaded" in line for line in lines)
    steps = list(run("job", job.id, "--json").json["events"])
    assert sum(event["kind"] == "progress" for event in steps) > 1
