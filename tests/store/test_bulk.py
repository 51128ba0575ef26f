"""Actions on many jobs say how many they changed, and why not the others."""

from __future__ import annotations

from typing import Any

import pytest

from outlast import InvalidOption, Outlast
from outlast.client.bulk import PurgeRequest
from outlast.model.bulk_count import BulkCount, explain_difference, pack_reasons, unpack_reasons
from outlast.model.flow import chain
from outlast.ops.bulk import purge_some, redrive_some
from outlast.ops.report import Filter
from tests.store.conftest import Run
from tests.store.flowing import call, lay, state
from tests.store.jobs import end, put_and_take, take

pytestmark = pytest.mark.kinds("sqlite", "postgres")
DEAD = Filter(state="dead")


def dead(run: Run, number: int) -> list[str]:
    """Dead jobs, newest first, as they are found."""
    ids = []
    for _ in range(number):
        claim = put_and_take(run)
        end(run, claim, "permanent")
        ids.append(claim.id)
    return ids[::-1]


def go_on(app: Outlast, retried: str, succeeded: str, removed: str) -> None:
    """What other people and workers do between the count and the action."""
    run = app.store.run
    app.retry(succeeded)
    end(run, *take(run))
    app.retry(retried)
    take(run)
    run(purge_some, [removed], "dead", 0.0, "bob", {})


@pytest.mark.parametrize("act", ["retry", "purge"])
def test_what_changed_between_count_and_action_is_left_alone_and_named(
    app: Outlast, act: str
) -> None:
    """R231: one runs by now, one has succeeded, one was removed; neither is touched."""
    ids = dead(app.store.run, 5)
    pages = app._find_pages(DEAD)
    assert pages == [ids]
    go_on(app, *ids[:3])
    done = (
        app._retry_pages(pages, "dead")
        if act == "retry"
        else app._purge_pages(pages, PurgeRequest(DEAD, {}, 0.0))
    )
    assert done == 2 and done.left == {"running": 1, "succeeded": 1, "removed": 1}
    told = explain_difference(5, done)
    assert told == "5 jobs matched. Left alone: 1 removed, 1 running, 1 succeeded."
    assert [str(app.job(id).state) for id in ids[:2]] == ["running", "succeeded"]


def test_verbs_say_why_others_were_left_alone(verb: Run, app: Outlast) -> None:
    """R231: too recent, needed by a flow, blocked by a job that stays dead."""
    run = app.store.run
    first, second = lay(run, chain(call(1), call(2)))
    end(run, *take(run))
    assert verb("purge", state="succeeded").left == {"needed by a flow": 1}
    end(run, *take(run), outcome="permanent")
    done = verb("purge", state="dead", older=3600.0)
    assert (done, done.left) == (0, {"ended too recently": 1})
    assert verb("retry_all") == 1 and state(run, first, second) == ["succeeded", "ready"]


@pytest.mark.parametrize(
    ("name", "filters", "reason"),
    [
        ("retry_all", {"state": "succeeded"}, "state must be one of dead, cancelled, not 'succ"),
        ("retry_all", {"state": "nonsense"}, "state must be one of dead, cancelled, not 'nons"),
        ("retry_all", {"state": None}, "state must be one of dead, cancelled, not None"),
        ("purge", {"state": "ready"}, "must be one of succeeded, dead, cancelled, not 'ready'"),
        ("retry_all", {"queue": 5}, "queue must be text, not 5"),
        ("purge", {"task": 5}, "task must be text, not 5"),
        ("jobs", {"tenant": 5}, "tenant must be text, not 5"),
        ("jobs", {"queue": "a\0b"}, "queue must be text, not 'a"),
        ("jobs", {"state": "nonsense"}, "must be one of waiting, scheduled, ready, running"),
        ("jobs", {"limit": -1}, "limit must be a whole number from 0 to 1000000000, not -1"),
        ("flows", {"limit": "5"}, "limit must be a whole number from 0 to 1000000000, not '5'"),
        ("flows", {"state": 5}, "state must be one of running, cancelling, .* not 5"),
    ],
)
def test_a_filter_that_can_match_nothing_is_refused(
    verb: Run, name: str, filters: dict[str, Any], reason: str
) -> None:
    """A wrong state or type is an error of the caller, not an empty answer."""
    with pytest.raises(InvalidOption, match=reason):
        verb(name, **filters)


def test_what_is_dead_because_of_a_job_comes_with_it(verb: Run, app: Outlast) -> None:
    """R231: more than matched, and said so; found by itself it counts once."""
    run = app.store.run
    lay(run, chain(call(1, queue="a"), call(2, queue="b")))
    end(run, *take(run, queue="a"), outcome="permanent")
    done = verb("retry_all", queue="a")
    assert (done, done.left, done.more) == (2, {}, 1)
    assert "1 of these had not matched" in explain_difference(1, done)
    end(run, *take(run, queue="a"), outcome="permanent")
    done = verb("retry_all")
    assert (done, done.left, done.more) == (2, {}, 0) and explain_difference(2, done) == ""


def test_one_that_cannot_run_without_another_stays(run: Run, app: Outlast) -> None:
    """R231: of two dead jobs, the second needs the first."""
    lay(app.store.run, chain(call(1, queue="a"), call(2, queue="b")))
    end(app.store.run, *take(app.store.run, queue="a"), outcome="permanent")
    done = app.retry_all(queue="b")
    assert (done, done.left) == (0, {"blocked by a dead prerequisite": 1})


def test_a_retry_that_is_sent_again_counts_what_it_did(run: Run) -> None:
    """R117: under the name of its action, as the answer to the first got lost."""
    ids = dead(run, 2)
    for _ in range(2):
        revived, done = run(
            redrive_some, ids, "dead", "ann", "0198c1f2-7d1e-7c3a-9f65-2b1f0c3d4e5f"
        )
        assert revived == set(ids) and done == 2 and not done.left


def test_reasons_pass_through_a_form() -> None:
    left = {"running": 5, "ended too recently": 2}
    assert unpack_reasons(pack_reasons(left)) == left
    assert unpack_reasons("<b>=1,running=x,=,dead=3") == {"dead": 3}, (
        "what cannot be read is left out"
    )
    assert explain_difference(9, BulkCount.of(5, {})) == "4 no longer matched when their turn came."
    assert explain_difference(3, BulkCount.of(5, {})) == "2 matched only after the count."
