"""`outlast events`: what happens to jobs, a line each."""

from __future__ import annotations

import json

from outlast import Outlast, group
from tests.cli.conftest import Commands
from tests.store.jobs import end, put_and_take, take


def test_successes_and_failures_are_printed(run: Commands, ol: Outlast) -> None:
    """R135: those of the past from the beginning; as JSON, one object a line."""
    done, failed = put_and_take(ol.store.run), put_and_take(ol.store.run)
    end(ol.store.run, done)
    end(ol.store.run, failed, "permanent")
    said = ("events", "--kind", "succeeded,attempt", "--after", "0", "--stay", "2.5")
    answer = run(*said, "--json")
    told = [json.loads(line) for line in answer.out.splitlines()]
    assert {(one["kind"], one["job"]) for one in told} == {
        ("succeeded", done.id),
        ("attempt", failed.id),
    }
    lines = run(*said).out.splitlines()
    assert len(lines) == 2 and any("succeeded" in line and done.id in line for line in lines)


def test_a_flow_ends_by_itself(run: Commands, ol: Outlast) -> None:
    @ol.task(name="work")
    def work() -> None: ...

    (job,) = ol.enqueue(group(work.job()))
    (claim,) = take(ol.store.run)
    end(ol.store.run, claim)
    answer = run("events", "--flow", job.flow, "--json")
    assert [json.loads(line)["kind"] for line in answer.out.splitlines()] == ["end"]


def test_a_wrong_id_is_refused(run: Commands, ol: Outlast) -> None:
    answer = run("events", "--after", "yesterday", "--stay", "1")
    assert answer.code == 1 and "must be the id of an event" in answer.err
