"""Cancel: of a queued job, of a running one, twice, and too late."""

from __future__ import annotations

import pytest

from outlast import JobCancelled, JobNotFound, Outlast, TooLate
from outlast.ops import job_actions
from outlast.ops.renew import renew
from outlast.ops.report import history, job
from tests.store.conftest import Run
from tests.store.jobs import end, new, put, put_and_take, take
from tests.support.databases import KINDS

pytestmark = pytest.mark.kinds(*KINDS)


@pytest.mark.parametrize("delay", [None, 60.0])
def test_a_queued_job_is_cancelled_at_once(run: Run, app: Outlast, delay: float | None) -> None:
    """R114, R116: it never starts, it says why, and it is on record."""
    (made,) = put(run, delay=delay)
    cancelled = run(job_actions.cancel, made.id, "ann", "not needed")
    assert (cancelled.state, cancelled.cancelling) == ("cancelled", False)
    assert cancelled.finished_at is not None
    assert take(run, 9) == []
    with pytest.raises(JobCancelled, match="not needed"):
        app.result(made.id, timeout=5)
    _, (event,) = run(history, made.id)
    assert event.kind == "cancel"
    assert (event.data["by"], event.data["reason"]) == ("ann", "not needed")


def test_a_running_job_is_asked_to_stop(run: Run) -> None:
    """R115: its owner hears of it at the next renewal, and may still finish."""
    held = put_and_take(run)
    assert run(renew, "w1", {held.id: held.fence}, 60.0).cancelling == set()
    asked = run(job_actions.cancel, held.id, "ann", "")
    assert (asked.state, asked.cancelling, asked.worker) == ("running", True, "w1")
    assert run(renew, "w1", {held.id: held.fence}, 60.0).cancelling == {held.id}
    end(run, held, "cancelled")
    assert run(job, held.id).state == "cancelled"


@pytest.mark.parametrize(
    ("outcome", "state"),
    [
        ("succeeded", "succeeded"), ("permanent", "dead"), ("failed", "cancelled"),
        ("postponed", "cancelled"), ("released", "cancelled"), ("cancelled", "cancelled"),
    ],
)  # fmt: skip
def test_a_requested_cancel_turns_every_way_back_to_work_into_cancelled(
    run: Run, outcome: str, state: str
) -> None:
    """R118: what has truly ended keeps its end."""
    held = put_and_take(run)
    run(job_actions.cancel, held.id, "ann", "")
    ((_, ended),) = end(run, held, outcome).accepted
    after = run(job, held.id)
    assert ended == after.state == state
    assert after.finished_at is not None and after.lease_until is None


def test_cancelling_twice_is_one_cancel(verb: Run, app: Outlast) -> None:
    """R117: same success; unknown is not found; ended otherwise is too late."""

    @app.task
    def work() -> None: ...

    (queued,) = verb("enqueue", work.job())
    first = verb("cancel", queued.id)
    assert verb("cancel", queued.id) == first
    assert len(verb("history", queued.id)[1]) == 1

    held = put_and_take(app.store.run)
    asked = verb("cancel", held.id)
    assert verb("cancel", held.id) == asked
    assert len(verb("history", held.id)[1]) == 1
    end(app.store.run, held)
    with pytest.raises(TooLate, match="succeeded"):
        verb("cancel", held.id)
    dead = put_and_take(app.store.run)
    end(app.store.run, dead, "permanent")
    with pytest.raises(TooLate, match="dead"):
        verb("cancel", dead.id)
    for unknown in (new().id, "no-id", ""):
        with pytest.raises(JobNotFound):
            verb("cancel", unknown)


def test_a_cancelled_job_can_be_redriven(run: Run) -> None:
    """R052: and the old request does not follow it into its new life."""
    held = put_and_take(run)
    run(job_actions.cancel, held.id, "ann", "")
    end(run, held, "cancelled")
    revived = run(job_actions.redrive_one, held.id, "bob")
    assert (revived.state, revived.cancelling) == ("ready", False)
    (again,) = take(run)
    end(run, again, "released")
    assert run(job, held.id).state == "ready"
