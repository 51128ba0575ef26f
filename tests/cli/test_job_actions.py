"""Cancel, retry, pause and resume from the command line."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from outlast import Outlast, Permanent
from outlast.client.verb_arguments import actor
from tests.cli.conftest import Commands, Program, patiently, work_off

UNKNOWN = "0198c1f2-7d1e-7c3a-9f65-2b1f0c3d4e5f"


def made(run: Commands, task: str = "add", *options: object) -> str:
    return run("enqueue", task, "--args", '{"a": 1}', *options).out.strip()


def give_up(ol: Outlast, *queues: str) -> list[str]:
    """Dead jobs, one in each of these queues."""

    @ol.task
    def hopeless(a: int) -> None:
        raise Permanent("no way")

    ids = [hopeless.using(queue=queue).enqueue(a=1).id for queue in queues]
    asyncio.run(work_off(ol))
    return ids


# Cancel


def test_cancelling_twice_is_one_cancel(run: Commands, ol: Outlast) -> None:
    """R117: the same success, the same words, one record of it."""
    id = made(run)
    first = run("cancel", id, "--reason", "not needed")
    second = run("cancel", id)
    assert (first.code, first.out) == (second.code, second.out) == (0, f"{id} cancelled\n")
    assert ol.job(id).state == "cancelled"
    _, events = ol.history(id)
    assert [(event.kind, event.data["by"]) for event in events] == [("cancel", actor())]


def test_cancelling_an_unknown_job_says_not_found(run: Commands) -> None:
    """R117"""
    answer = run("cancel", UNKNOWN)
    assert answer.code == 1
    assert answer.err.startswith(f"outlast: There is no job {UNKNOWN}")


def test_cancelling_an_ended_job_says_too_late(run: Commands, ol: Outlast) -> None:
    """R117"""
    (id,) = give_up(ol, "default")
    answer = run("cancel", id)
    assert (answer.code, answer.err) == (1, f"outlast: Job {id} is already dead.\n")


def test_one_bad_id_keeps_no_other_from_being_cancelled(run: Commands, ol: Outlast) -> None:
    """R117: programs read the kind of error, not its words."""
    (gone,) = give_up(ol, "default")
    first, last = made(run), made(run)
    answer = run("cancel", first, UNKNOWN, gone, last, "--json")
    assert answer.code == 1
    told = json.loads(answer.out)
    assert [one["id"] for one in told] == [first, UNKNOWN, gone, last]
    kinds = [one["error"] and one["error"]["type"] for one in told]
    assert kinds == [None, "JobNotFound", "TooLate", None]
    assert [one["ok"] for one in told] == [True, False, False, True]
    assert told[3]["job"] == ol.job(last).as_json()


def test_a_running_job_is_asked_to_stop(run: Commands, ol: Outlast, program: Program) -> None:
    """R117: told apart from a job that is cancelled already."""
    id = run("enqueue", "wait_for", "--queue", "slow", "--args", '{"file": "/never"}').out.strip()
    worker = program.worker("--cancel-grace", "0.2")
    patiently(lambda: ol.job(id).state == "running", message=worker.output)
    assert run("cancel", id).out == f"{id} asked to stop\n"
    patiently(lambda: ol.job(id).state == "cancelled", message=worker.output)
    assert run("cancel", id).out == f"{id} cancelled\n"


# Retry


def test_a_dead_job_gets_a_new_life(run: Commands, ol: Outlast) -> None:
    """R052: attempts reset, and who did it is on record; a second retry changes nothing."""
    (id,) = give_up(ol, "default")
    assert run("retry", id).out == f"{id} ready\n"
    job = ol.job(id)
    assert (job.state, job.attempt, job.failures) == ("ready", 0, 0)
    assert run("retry", id).out == f"{id} ready\n"
    _, events = ol.history(id)
    assert [(event.kind, event.data["by"]) for event in events] == [("redrive", actor())]
    assert f"by={actor()}" in run("job", id).out


def test_many_are_retried_by_filter_and_counted_first(run: Commands, ol: Outlast) -> None:
    """R052: only what fits, each with its record; run again, there is nothing left to do."""
    ids = give_up(ol, "a", "a", "b")
    answer = run("retry", "--all", "--queue", "a", "--yes")
    assert (answer.code, answer.out, answer.err) == (
        0, "Retried 2 jobs.\n", "2 dead jobs will be retried.\n",
    )  # fmt: skip
    assert [ol.job(id).state for id in ids] == ["ready", "ready", "dead"]
    for id in ids[:2]:
        assert [event.data["by"] for event in ol.history(id)[1]] == [actor()]
    again = run("retry", "--all", "--queue", "a", "--yes", "--json").json
    assert again == {"found": 0, "retried": 0, "left": {}, "more": 0}


@pytest.mark.parametrize("command", [("retry", "--all"), ("purge",)])
def test_what_changed_while_the_question_was_open_is_named(
    run: Commands, ol: Outlast, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    """R231: three are announced; one is retried by somebody else before the answer. Only what is as
    it was announced is changed, and the answer says why not all."""
    first, *_ = give_up(ol, "a", "a", "a")

    def answer(*_: object, **__: object) -> bool:
        ol.retry(first)
        return True

    monkeypatch.setattr("click.confirm", answer)
    monkeypatch.setattr("outlast.cli.job_actions.is_terminal", lambda: True)
    told = run(*command)
    assert told.err.startswith("3 dead jobs")
    did = "Retried" if "retry" in command else "Removed"
    assert told.out == f"{did} 2 jobs. 3 jobs matched. Left alone: 1 ready.\n"
    assert ol.job(first).state == "ready"


def test_cancelled_jobs_are_retried_only_when_asked_for(run: Commands, ol: Outlast) -> None:
    """R052"""
    id = made(run, "add", "--tenant", "acme")
    run("cancel", id)
    assert run("retry", "--all", "--yes", "--json").json["retried"] == 0
    chosen = ("--state", "cancelled", "--task", "add", "--tenant", "acme")
    again = run("retry", "--all", *chosen, "--yes", "--json").json
    assert again == {"found": 1, "retried": 1, "left": {}, "more": 0}
    assert ol.job(id).state == "ready"


@pytest.mark.kinds("sqlite")
def test_many_are_not_retried_unasked(run: Commands, ol: Outlast) -> None:
    (id,) = give_up(ol, "default")
    answer = run("retry", "--all")
    assert answer.code == 2
    assert "1 dead job will be retried." in answer.err
    assert "pass --yes" in answer.err
    assert ol.job(id).state == "dead"


@pytest.mark.kinds("sqlite")
@pytest.mark.parametrize("said", [[], ["--all", UNKNOWN], [UNKNOWN, "--queue", "a"]])
def test_it_must_be_clear_what_to_retry(run: Commands, said: list[str]) -> None:
    assert run("retry", *said).code == 2


def test_a_job_that_cannot_be_retried_says_why(run: Commands, ol: Outlast) -> None:
    """R052"""

    @ol.task
    def fine() -> None: ...

    id = fine.enqueue().id
    asyncio.run(work_off(ol))
    answer = run("retry", id, UNKNOWN)
    assert answer.code == 1
    assert f"Job {id} is already succeeded." in answer.err
    assert f"There is no job {UNKNOWN}" in answer.err


# Pause and resume


def test_a_paused_queue_starts_nothing_and_a_running_job_goes_on(
    run: Commands, ol: Outlast, program: Program, tmp_path: Path
) -> None:
    """R119: it survives a restart of the worker, and resuming it lets everything run."""
    release = tmp_path / "release"
    running = run(
        "enqueue", "wait_for", "--queue", "slow", "--args", f'{{"file": "{release}"}}'
    ).out.strip()
    worker = program.worker()
    patiently(lambda: ol.job(running).state == "running", message=worker.output)

    assert run("pause", "slow").out == "slow is paused; ready: 0.\n"
    held = made(run, "add", "--queue", "slow")
    release.touch()
    patiently(lambda: ol.job(running).state == "succeeded", message=worker.output)

    def others_run() -> None:
        """The worker has looked since: it did what came later, in another queue."""
        later = made(run)
        patiently(lambda: ol.job(later).state == "succeeded", message=worker.output)

    others_run()
    assert ol.job(held).state == "ready"
    assert "Its queue is paused: `outlast resume slow`" in run("job", held).out
    worker.terminate()
    assert worker.wait() == 0
    worker = program.worker()
    others_run()
    assert ol.job(held).state == "ready"

    assert run("pause", "slow").code == 0, "pausing twice is pausing"
    assert run("resume", "slow", "--json").json["paused"] is False
    patiently(lambda: ol.job(held).state == "succeeded", message=worker.output)


@pytest.mark.kinds("sqlite")
def test_a_queue_that_nothing_has_named_is_open(run: Commands, ol: Outlast) -> None:
    """R119: resuming it changes nothing, and is no error."""
    assert run("resume", "mistyped").out == "mistyped is open; ready: 0.\n"
    assert run("resume", "mistyped", "--json").json["paused"] is False
    assert ol.queues() == []


@pytest.mark.kinds("sqlite")
@pytest.mark.parametrize("command", ["pause", "resume"])
def test_a_queue_that_cannot_be_is_refused(run: Commands, command: str) -> None:
    answer = run(command, "x" * 201)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("outlast: The option queue must be 1 to 200 characters")
