"""Every way to a final state passes one door: hooks are made, followers are told, once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from outlast import InvalidOption
from outlast.model.flow import chain, group
from outlast.model.job import Job
from outlast.ops import audit, duties, job_actions, report
from outlast.ops.audit import find
from outlast.ops.cancel_flow import cancel_page, mark_cancelled
from outlast.ops.claim import ClaimRequest
from outlast.ops.finish import finish
from outlast.ops.finish_and_claim import finish_and_claim
from outlast.ops.reclaim import reclaim, reclaim_from_workers, reclaim_overdue
from tests.store.conftest import Run
from tests.store.flowing import call, calls, lay, number, results, state
from tests.store.jobs import end, end_leases, ending, set_all, states, take
from tests.support import Database

Way = Callable[[Run, Database, Job], str]


def succeeds(run: Run, database: Database, job: Job) -> str:
    end(run, take(run)[0])
    return "succeeded"


def succeeds_in_passing(run: Run, database: Database, job: Job) -> str:
    """Given back together with the taking of new jobs."""
    run(finish_and_claim, [ending(take(run)[0])], ClaimRequest("w1", "default", 1, 60.0))
    return "succeeded"


def fails_too_often(run: Run, database: Database, job: Job) -> str:
    end(run, take(run)[0], "failed")
    return "dead"


def fails_for_good(run: Run, database: Database, job: Job) -> str:
    end(run, take(run)[0], "permanent")
    return "dead"


def cannot_be_read(run: Run, database: Database, job: Job) -> str:
    end(run, take(run)[0], "undecodable")
    return "dead"


def costs_too_many_workers(run: Run, database: Database, job: Job) -> str:
    take(run)
    end_leases(database)
    run(reclaim)
    return "dead"


def costs_too_many_buried_workers(run: Run, database: Database, job: Job) -> str:
    take(run)
    run(reclaim_from_workers, ["w1"], "exit")
    return "dead"


def runs_past_its_deadline(run: Run, database: Database, job: Job) -> str:
    take(run)
    past = "1" if database.is_sqlite else "'2020-01-01'"
    set_all(database, f"started_at = {past}", "state = 'running'")
    run(reclaim_overdue, 1.0, 0.5)
    return "dead"


def is_cancelled(run: Run, database: Database, job: Job) -> str:
    run(job_actions.cancel, job.id, "ann", "")
    return "cancelled"


def is_cancelled_while_it_runs(run: Run, database: Database, job: Job) -> str:
    (held,) = take(run)
    run(job_actions.cancel, job.id, "ann", "")
    end(run, held, "cancelled")
    return "cancelled"


def is_cancelled_and_its_worker_dies(run: Run, database: Database, job: Job) -> str:
    take(run)
    run(job_actions.cancel, job.id, "ann", "")
    end_leases(database)
    run(reclaim)
    return "cancelled"


def expires(run: Run, database: Database, job: Job) -> str:
    past = "1" if database.is_sqlite else "'2020-01-01'"
    set_all(database, f"expires_at = {past}", f"id = '{job.id}'")
    run(duties.expire)
    return "cancelled"


def expires_and_only_the_audit_sees_it(run: Run, database: Database, job: Job) -> str:
    past = "1" if database.is_sqlite else "'2020-01-01'"
    set_all(database, f"expires_at = {past}", f"id = '{job.id}'")
    (check,) = [c for c in audit.checks({}, 1.0, 1.0, 0.5) if c.name == "expired"]
    run(check.repair, [stray.id for stray in run(find, "find_expired", late=60.0)])
    return "cancelled"


def goes_with_its_flow(run: Run, database: Database, job: Job) -> str:
    assert job.flow is not None
    why = run(mark_cancelled, job.flow, "ann", "")
    while run(cancel_page, job.flow, why).left:
        pass
    return "cancelled"


WAYS: list[Way] = [
    succeeds, succeeds_in_passing, fails_too_often, fails_for_good, cannot_be_read,
    costs_too_many_workers, costs_too_many_buried_workers, runs_past_its_deadline, is_cancelled,
    is_cancelled_while_it_runs, is_cancelled_and_its_worker_dies, expires,
    expires_and_only_the_audit_sees_it, goes_with_its_flow,
]  # fmt: skip


def test_every_end_makes_its_hooks_and_tells_its_followers(run: Run, database: Database) -> None:
    """R053, R073, R164, `unhooked`, `deaf-parent`: in the same transaction, once: one hook
    of the right kind; who needed a success ends too, and so does who waits for that; who did not,
    starts."""
    for way in WAYS:
        name = way.__name__
        hooks = {
            f"on_{kind}": call(n, queue=name, priority=n)
            for n, kind in enumerate(("success", "dead", "cancel"))
        }
        said = {"max_attempts": 1, "max_crashes": 1, "timeout": 9.0}
        (job,) = lay(run, group(call(7, **said, **hooks)))
        needs, any_end = lay(
            run, call(8, after=job, queue="f"), call(9, after=job, when="finished", queue="f")
        )
        (grandchild,) = lay(run, call(10, after=needs, when="finished", queue="f"))
        ended = way(run, database, job)
        good = ended == "succeeded"
        assert state(run, job) == [ended], name
        assert state(run, needs, any_end) == ["ready" if good else "dead", "ready"], name
        assert state(run, grandchild) == ["waiting" if good else "ready"], name
        run(reclaim), run(duties.expire)
        made = run(report.jobs, report.Filter(queue=name), None, 10)
        kind = {"succeeded": 0, "dead": 1, "cancelled": 2}[ended]
        assert [(hook.priority, hook.state) for hook in made] == [(kind, "ready")], name


def test_a_claim_knows_whose_end_concerns_others(run: Run) -> None:
    """R132: who has hooks, who only has followers, and who has neither: so its end is handed in."""
    lay(run, call(0), call(1, on_success=call(9)), chain(call(2), call(3)))
    tied = {number(one): (bool(one.has_dependents), bool(one.has_hooks)) for one in take(run, 9)}
    assert tied == {0: (False, False), 1: (True, True), 2: (True, False)}


def test_a_hook_reads_the_job_that_made_it(run: Run) -> None:
    """R132: like any follower."""
    (job,) = lay(run, call(1, on_success=[call(2, queue="h"), call(3, queue="h")]))
    end(run, take(run)[0], result="41")
    hooks = take(run, 5, queue="h")
    assert [results(run, hook) for hook in hooks] == [[41], [41]]
    assert state(run, job) == ["succeeded"]


def test_a_hook_may_have_hooks(run: Run) -> None:
    """R164: each end makes the next one."""
    last = call(3, queue="h3")
    lay(run, call(1, on_dead=call(2, queue="h2", max_attempts=1, on_dead=last)))
    end(run, take(run)[0], "permanent")
    end(run, take(run, queue="h2")[0], "permanent")
    assert len(take(run, queue="h3")) == 1


def test_a_hook_cannot_have_a_key() -> None:
    """R127, R164: it might be taken, or be in somebody's open transaction, and the job could not
    end."""
    with pytest.raises(InvalidOption, match="key"):
        call(1, on_success=call(2, key="k")).new_job()


def test_an_attempt_that_is_not_the_last_makes_no_hook(run: Run, database: Database) -> None:
    """R132: a hook is for the end of the job."""
    lay(run, call(1, max_attempts=2, on_dead=call(2), on_success=call(3), on_cancel=call(4)))
    end(run, take(run)[0], "failed")
    assert states(database) == ["scheduled"]


def test_what_a_rolled_back_finish_would_have_made_is_not_there(
    run: Run, database: Database
) -> None:
    """R131: a resource that a hook releases is released on the commit, or not at all."""
    (job,) = lay(run, call(1, on_success=call(2)))
    (held,) = take(run)

    def broken() -> object:
        yield from finish([ending(held)])
        raise RuntimeError("the process failed before the commit")

    with pytest.raises(RuntimeError):
        run(broken)
    assert states(database) == ["running"]
    end(run, held)
    assert sorted(states(database)) == ["ready", "succeeded"]
    assert state(run, job) == ["succeeded"]


def test_a_late_end_after_the_flow_was_cancelled_changes_nothing(
    run: Run, database: Database
) -> None:
    """R101: an old owner's success of a job that is gone is lost, and nobody is told of it."""
    *children, last = lay(run, group(*calls(2)).then(call(9)))
    held = take(run, 2)
    goes_with_its_flow(run, database, last)
    end_leases(database)
    run(reclaim)
    assert states(database) == ["cancelled"] * 3
    finished = run(finish, [ending(one) for one in held])
    assert len(finished.lost) == 2
    assert states(database) == ["cancelled"] * 3
    assert len(children) == 2


def test_a_hook_that_cannot_be_read_keeps_no_job_from_ending(run: Run, database: Database) -> None:
    """R082, R164: nor the one that ends beside it."""
    nonsense = "7", "[]", '{"succeeded": 7}', '{"succeeded": [7]}', '{"succeeded": [{}]}'
    for hooks in nonsense:
        spoiled, well = lay(
            run, call(1, on_success=call(2)), call(1, on_success=call(3, queue="h"))
        )
        set_all(database, f"hooks = '{hooks}'", f"id = '{spoiled.id}'")
        run(finish, [ending(one) for one in take(run, 2)])
        assert state(run, spoiled, well) == ["succeeded"] * 2
        assert len(take(run, 5, queue="h")) == 1


def test_a_hook_of_a_newer_release_is_made_as_far_as_it_is_understood(
    run: Run, database: Database
) -> None:
    """Two releases work side by side (`unmigrated`)."""
    (job,) = lay(run, call(1, on_success=call(3, queue="h")))
    newer = 'replace(CAST(hooks AS text), \'"tenant"\', \'"mood": 7, "tenant"\')'
    set_all(database, f"hooks = {newer if database.is_sqlite else f'CAST({newer} AS json)'}")
    end(run, take(run)[0])
    assert state(run, job) == ["succeeded"]
    assert len(take(run, 5, queue="h")) == 1
