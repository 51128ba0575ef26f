"""Reclaim, drain, forget and purge from the command line."""

from __future__ import annotations

import json
import re

from outlast import Outlast
from outlast.model.breaker import Circuit, OpenBreaker
from outlast.ops import workers as worker_ops
from outlast.ops.breakers import open_breaker
from outlast.ops.claim import ClaimRequest, claim
from tests.cli.conftest import Commands
from tests.cli.test_job_actions import UNKNOWN, give_up, made


def test_jobs_are_taken_from_a_worker(run: Commands, ol: Outlast) -> None:
    """R200: by their ids, or all that it holds."""
    ids = [made(run) for _ in range(3)]
    assert len(ol.store.run(claim, ClaimRequest("hung", "default", 3, 60.0))) == 3
    answer = run("reclaim", ids[0], UNKNOWN)
    assert (answer.code, answer.out) == (1, f"{ids[0]} ready\n")
    assert answer.err.startswith(f"outlast: There is no job {UNKNOWN}")
    told = run("reclaim", "--worker", "hung", "--json").json
    assert sorted(one["id"] for one in told) == sorted(ids[1:])
    assert {ol.job(id).state for id in ids} == {"ready"}
    assert run("reclaim", "--worker", "hung").out == ""
    for wrong in ([], [ids[0], "--worker", "hung"]):
        assert run("reclaim", *wrong).code == 2


def test_an_open_breaker_is_shown_and_closed(run: Commands, ol: Outlast) -> None:
    """R120, R223: by `queues`, `job` and `doctor`; what an error says does not steer a terminal."""
    id = made(run)
    task = ol.job(id).task
    down = OpenBreaker(Circuit("default", task), "first", "ConnectionError")
    ol.store.run(open_breaker, down, "refused\x1b[2J", "w1", 60.0)
    shown = run("queues").out
    assert f"open: {task}" in shown and "\x1b" not in shown
    assert f"Breaker open: queue default, task {task}: ConnectionError: refused" in shown
    assert "the next probe is in" in shown
    assert re.search(r"; since \d\d:\d\d \S+ \(", shown), "with the zone"
    (queue,) = run("queues", "--json").json
    assert queue["breakers"][0]["kind"] == "ConnectionError"
    told = run("job", id).out
    assert "circuit breaker of its task in its queue has been open" in told and "\x1b" not in told
    doctor = run("doctor", "--json")
    found = [one for one in json.loads(doctor.out) if one["name"] == "breaker-open"]
    assert doctor.code == 1 and "outlast close-breaker default" in found[0]["advice"]
    assert "has been open for" in str(found[0])
    wrong = run("close-breaker", "default", "typo")
    said = f"outlast: default: no breaker of the task typo is open. Open: {task}.\n"
    assert (wrong.code, wrong.out, wrong.err) == (1, "", said)
    asked = run("close-breaker", "default", "typo", "--json")
    told_json = {"queue": "default", "task": "typo", "closed": 0, "open": [task]}
    assert (asked.code, json.loads(asked.out)) == (1, told_json)
    elsewhere = f"mail: no breaker is open. Open: {task} in default.\n"
    assert (run("close-breaker", "mail").out, run("close-breaker", "mail").code) == (elsewhere, 0)
    assert run("close-breaker", "default", task).out == "default: 1 breaker closed.\n"
    assert run("close-breaker", "default").out == "default: no breaker is open.\n"
    asked = run("close-breaker", "default", "--json")
    assert asked.json == {"queue": "default", "task": None, "closed": 0, "open": []}
    assert "Breaker" not in run("queues").out


def test_a_worker_is_drained_and_shown_so(run: Commands, ol: Outlast) -> None:
    """R200"""
    ol.store.run(worker_ops.register, ol.worker().registration_row() | {"id": "w1"})
    assert run("drain", "w1").out == "w1 is draining.\n"
    assert [one["state"] for one in run("workers", "--json").json] == ["draining"]
    assert run("drain", "w1", "--undo", "--json").json == {"worker": "w1", "draining": False}
    assert [one["state"] for one in run("workers", "--json").json] == ["working"]
    answer = run("drain", "w2")
    assert answer.code == 1 and answer.err.startswith("outlast: There is no worker w2")


def test_ended_jobs_are_removed_after_a_question(run: Commands, ol: Outlast) -> None:
    """R200: the number is told first; nobody to ask is no yes."""
    one, two = give_up(ol, "a", "b")
    answer = run("purge", "--queue", "a")
    assert answer.code == 2 and "--yes" in answer.err
    assert answer.err.startswith("1 dead job will be removed.\n")
    assert ol.counts()["dead"] == 2
    answer = run("purge", "--queue", "a", "--older", "2h", "--yes")
    assert answer.err == "1 dead job, of which those that ended 2.0 h ago will be removed.\n"
    assert answer.out == "Removed 0 jobs. 1 job matched. Left alone: 1 ended too recently.\n"
    assert run("purge", "--queue", "a", "--yes").out == "Removed 1 job.\n"
    assert [job.id for job in ol.jobs()] == [two]
    told = run("purge", "--yes", "--json").json
    assert told == {"found": 1, "purged": 1, "left": {}, "more": 0}
    assert run("job", one).code == 1
    assert run("purge", "--state", "running", "--yes").code == 2


def test_an_ended_job_is_forgotten(run: Commands, ol: Outlast) -> None:
    """R165: what it was given is gone, how it ended is not; one that has not ended stays as it
    is."""
    (gone,) = give_up(ol, "a")
    waits = made(run)
    answer = run("forget", gone, waits, "--json")
    assert answer.code == 1
    first, second = json.loads(answer.out)
    assert first["ok"] and first["job"]["args"] is None and first["job"]["state"] == "dead"
    assert second["error"]["type"] == "TooEarly" and ol.job(waits).args == {"a": 1}


def test_a_queue_is_told_how_long_to_keep(run: Commands, ol: Outlast) -> None:
    """R165"""
    assert run("keep", "mail", "45s").out == "mail keeps ended jobs for 45.0 s at most.\n"
    assert [queue.keep for queue in ol.queues()] == [45.0]
    assert run("keep", "mail", "--undo", "--json").json == {"queue": "mail", "keep": None}
    assert [queue.keep for queue in ol.queues()] == [None]
    for wrong in ([], ["1h", "--undo"], ["soon"]):
        assert run("keep", "mail", *wrong).code == 2


def test_jobs_that_wait_are_changed_by_filter(run: Commands, ol: Outlast) -> None:
    """The number first, then the question; --yes skips that."""
    ids = [made(run) for _ in range(3)]
    asked = run("reschedule", "--delay", "2h", "--state", "ready")
    assert asked.code == 2 and "3 ready jobs will be rescheduled." in asked.err
    done = run("reschedule", "--delay", "2h", "--state", "ready", "--yes")
    assert done.out == "Rescheduled 3 jobs.\n"
    assert {ol.job(id).state for id in ids} == {"scheduled"}
    told = run("reschedule", "--delay", "0", "--yes", "--json").json
    assert told == {"found": 3, "rescheduled": 3, "left": {}, "more": 0}
    assert run("prioritize", "9", "--yes").out == "Prioritized 3 jobs.\n"
    assert run("move", "bulk", "--queue", "default", "--yes").out == "Moved 3 jobs.\n"
    assert {(ol.job(id).queue, ol.job(id).priority) for id in ids} == {("bulk", 9)}
    for wrong in (["reschedule"], ["move", "bulk"], ["move", "!", "--queue", "x"], ["prioritize"]):
        assert run(*wrong, "--yes").code == 2, wrong
