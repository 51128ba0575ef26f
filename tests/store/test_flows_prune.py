"""What a live flow needs is kept; when it is over, everything of it goes."""

from __future__ import annotations

import pytest

from outlast.model.flow import chain, group
from outlast.ops import job_actions, retention
from tests.store.conftest import Run
from tests.store.flowing import call, calls, end_all, end_one, lay, left, results, state
from tests.store.jobs import end, take
from tests.support import Database


def prune(run: Run) -> int:
    return sum(run(retention.prune, state, -1.0, 1000) for state in ("succeeded", "cancelled"))


def test_results_are_kept_until_they_were_read(run: Run, database: Database) -> None:
    """R165, `deaf-parent`: while anything of the flow is still to end, nothing of it is
    removed; afterwards nothing of it stays."""
    *_, last = lay(run, group(*calls(3), fail_fast=True).then(group(call(8), call(9))))
    for _ in range(5):
        end_one(run)
        if state(run, last) != ["succeeded"]:
            assert prune(run) == 0
    assert left(database) == {"job": 5, "edge": 6, "flow": 2}
    assert len(results(run, last)) == 3
    assert prune(run) == 5
    assert left(database) == {"job": 0, "edge": 0, "flow": 0}


@pytest.mark.parametrize("needs", ["before", "after"])
def test_what_a_later_job_waits_for_is_kept(run: Run, database: Database, needs: str) -> None:
    """R165: without any flow, and whether it ended before or after somebody came to need it."""
    (one,) = lay(run, call(1))
    if needs == "after":
        end_one(run)
    (last,) = lay(run, call(2, after=one, delay=60.0))
    if needs == "before":
        end_one(run)
    assert prune(run) == 0
    assert results(run, last) == [one.id]
    run(job_actions.cancel, last.id, "ann", "")
    assert prune(run) == 1, "it may be redriven, and then it would read the other's result"
    assert prune(run) == 1
    assert left(database) == {"job": 0, "edge": 0, "flow": 0}


def test_a_dead_follower_keeps_what_it_would_read(run: Run, database: Database) -> None:
    """R051, R165: somebody may redrive it."""
    one, two = lay(run, chain(*calls(2)))
    end_one(run)
    end_one(run, "permanent")
    assert prune(run) == 0
    run(job_actions.redrive, [two.id], "ann")
    (held,) = take(run)
    assert results(run, held) == [one.id]
    end(run, held)
    assert prune(run) == 2
    assert left(database) == {"job": 0, "edge": 0, "flow": 0}


def test_a_job_is_kept_for_its_hook(run: Run, database: Database) -> None:
    """R132: until the hook has run."""
    lay(run, call(1, on_success=call(2)))
    end_one(run)
    assert prune(run) == 0
    assert end_all(run) == 1
    assert prune(run) == 2
    assert left(database) == {"job": 0, "edge": 0, "flow": 0}
