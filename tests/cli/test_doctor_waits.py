"""`outlast doctor`: waits that nobody can answer, and jobs whose code has changed meanwhile."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from outlast import Outlast
from outlast.model.wait import Wait, WaitKind
from outlast.ops import workers as worker_ops
from outlast.ops.finish import finish
from outlast.ops.steps import keep
from tests.cli.conftest import Commands
from tests.store.jobs import ending, take

APP = """
from outlast import Context, Outlast

ol = Outlast()

@ol.task(name="refund", signals={"approval": bool})
def refund(ctx: Context) -> None:
    ctx.step("ask", print)
    ctx.steps({f"part {n}": print for n in range(3)})
    ctx.wait("approval")

@ol.task(name="free")
def free(ctx: Context) -> None: ...
"""


def parked(ol: Outlast, task: str, signal: str, *steps: str) -> None:
    @ol.task(name=task)
    def old(x: int = 0) -> None: ...

    old.enqueue()
    (claim,) = take(ol.store.run)
    for step in steps:
        ol.store.run(keep, claim, step, "1")
    wait = Wait(signal, WaitKind.SIGNAL, (signal,))
    ol.store.run(finish, [ending(claim, "waited", wait=wait)])


def test_waiting_jobs_are_compared_with_the_code(
    run: Commands, ol: Outlast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R247: a signal that is not declared any more, and steps that were renamed or removed; a
    name that the code computes, or still has, is no finding."""
    (tmp_path / "doctor_app.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    parked(ol, "refund", "approval", "ask", "part 2", "asked")
    parked(ol, "refund", "consent", "ask")
    parked(ol, "free", "anything")
    assert "doctor_app" not in run("doctor").out
    found = json.loads(run("doctor", "--app", "doctor_app:ol", "--json").out)
    told = {one["name"]: one["sentence"] for one in found}
    assert "consent" in told["unanswerable"] and "no longer declares" in told["unanswerable"]
    assert "'asked'" in told["unknown-step"]
    assert sum(one["name"] in ("unanswerable", "unknown-step") for one in found) == 2


def test_a_wait_of_a_task_that_no_worker_knows_is_found(run: Commands, ol: Outlast) -> None:
    """R247: an answer would start nothing."""
    parked(ol, "gone", "approval")
    assert "unanswerable" not in run("doctor").out  # there is no worker at all
    with Outlast(ol.store.address.url, schema=ol.store.address.schema) as other:
        row = other.worker().registration_row()
    ol.store.run(worker_ops.register, row)
    out = run("doctor").out
    assert "unanswerable" in out and "1 job of 'gone' waits for approval" in out
