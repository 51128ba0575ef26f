"""What the command line shows is what the database says, and what the library says."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import socket
import subprocess
import sys
import termios
from typing import Any

import pytest

from outlast import Context, Outlast, Permanent, Retry
from outlast.client.verb_arguments import actor
from outlast.model.lifecycle import State
from tests.cli.conftest import Commands, Program, patiently, work_off
from tests.support import Database


def tasks(ol: Outlast) -> dict[str, Any]:
    @ol.task
    def fine(n: int) -> dict[str, int]:
        return {"n": n}

    @ol.task(queue="docs")
    def hopeless(why: str) -> None:
        raise Permanent(why)

    @ol.task(retry=Retry(max_attempts=3, base=600, cap=600))
    def unlucky() -> None:
        raise RuntimeError("not today")

    return {"fine": fine, "hopeless": hopeless, "unlucky": unlucky}


def one_of_each(ol: Outlast) -> dict[str, str]:
    """A job in every state that can be had without a worker of one's own."""
    made = tasks(ol)
    ids = {
        "succeeded": made["fine"].enqueue(n=1).id,
        "dead": made["hopeless"].enqueue(why="no way").id,
        "scheduled": made["unlucky"].enqueue().id,
        "cancelled": made["fine"].using(tenant="acme").enqueue(n=2).id,
    }
    ol.cancel(ids["cancelled"], "changed my mind")
    asyncio.run(work_off(ol))
    ids["ready"] = made["fine"].using(priority=9, key="k", expires=3600).enqueue(n=3).id
    return ids


def test_every_path_tells_the_same_of_a_job(run: Commands, ol: Outlast) -> None:
    """R167: the library, `jobs`, `job`, and the row itself agree, state by state."""
    ids = one_of_each(ol)
    listed = {job["id"]: job for job in run("jobs", "--json").json}
    assert set(listed) == set(ids.values())
    for state, id in ids.items():
        told = ol.job(id).as_json()
        assert told["state"] == state
        assert listed[id] == told
        shown = run("job", id, "--json").json
        assert {name: shown[name] for name in told} == told


def test_the_history_of_a_job_is_the_same_on_every_path(run: Commands, ol: Outlast) -> None:
    """R167, R199"""
    id = one_of_each(ol)["dead"]
    shown = run("job", id, "--json").json
    (attempt,), _ = ol.history(id)
    (told,) = shown["attempts"]
    assert (told["outcome"], told["worker"], told["error"]) == (
        "permanent", attempt.worker, attempt.error,
    )  # fmt: skip
    assert shown["why"] == ol.explain(id)


def test_the_steps_that_a_job_kept_are_listed(run: Commands, ol: Outlast) -> None:
    """R105, R199: by name, with the attempt that kept each, and when."""

    @ol.task(max_attempts=1)
    def stepped(ctx: Context) -> None:
        ctx.step("fetch the page", str)
        ctx.step("store it", str)
        raise OSError("after two")

    id = stepped.enqueue().id
    asyncio.run(work_off(ol))
    kept = run("job", id, "--json").json["steps"]
    assert [(step["name"], step["attempt"]) for step in kept] == [
        ("fetch the page", 1), ("store it", 1),
    ]  # fmt: skip
    assert all(step["at"] for step in kept)
    told = run("job", id).out
    assert "Steps with stored results:" in told and "fetch the page" in told


def test_counts_of_queues_agree(run: Commands, ol: Outlast) -> None:
    """R167"""
    one_of_each(ol)
    ol.pause("docs")
    told = {queue.name: queue for queue in ol.queues()}
    shown = {queue["name"]: queue for queue in run("queues", "--json").json}
    assert shown.keys() == told.keys() == {"default", "docs"}
    for name, queue in told.items():
        assert (shown[name]["counts"], shown[name]["paused"]) == (queue.counts, queue.paused)
        assert list(queue.counts) == [str(state) for state in State], "as the HTTP API has them"
    assert run("top", "--json").json["counts"] == ol.counts()


def test_a_queue_whose_jobs_have_all_succeeded_is_listed(run: Commands, ol: Outlast) -> None:
    @ol.task(queue="done")
    def work() -> None: ...

    work.enqueue()
    asyncio.run(work_off(ol))
    (queue,) = run("queues", "--json").json
    assert (queue["name"], queue["counts"]["succeeded"], queue["oldest"]) == ("done", 1, None)
    assert "succeeded" in run("queues").out
    assert [one.name for one in ol.queues()] == ["done"]


def test_a_job_is_shown_in_words(run: Commands, ol: Outlast) -> None:
    """R199: facts, attempts, events, and why it is not running."""
    ids = one_of_each(ol)
    dead = run("job", ids["dead"]).out
    assert "state       dead" in dead
    assert "hopeless" in dead and "docs" in dead
    assert "permanent" in dead and "no way" in dead
    assert "Traceback (most recent call last)" in dead
    assert f"`outlast retry {ids['dead']}` runs it again" in dead
    assert "It tries again in" in run("job", ids["scheduled"]).out
    assert "No worker is alive: start one" in run("job", ids["ready"]).out
    cancelled = run("job", ids["cancelled"]).out
    assert "changed my mind" in cancelled
    assert f"by={actor()}" in cancelled


def test_jobs_are_filtered_and_paged_newest_first(run: Commands, ol: Outlast) -> None:
    made = tasks(ol)
    ids = [
        made["fine"].using(queue=f"q{n % 2}", tenant=f"t{n % 3}").enqueue(n=n).id for n in range(7)
    ]

    def listed(*args: object) -> list[str]:
        return [job["id"] for job in run("jobs", "--json", *args).json]

    assert listed() == ids[::-1]
    assert listed("--limit", 2) == ids[:-3:-1]
    assert listed("--limit", 2, "--before", ids[5]) == [ids[4], ids[3]]
    assert listed("--queue", "q1") == ids[1::2][::-1]
    assert listed("--tenant", "t2", "--queue", "q0") == [ids[2]]
    assert listed("--task", "fine", "--state", "ready") == ids[::-1]
    assert listed("--task", "other") == []
    assert run("jobs", "--task", "other").out == "No matching jobs.\n"
    assert all(id in run("jobs").out for id in ids), "ids are never cut"


def test_dead_jobs_are_listed_with_their_reasons(run: Commands, ol: Outlast) -> None:
    """R051: newest first, everything that is needed to decide."""
    hopeless = tasks(ol)["hopeless"]
    ids = [hopeless.enqueue(why=f"reason {n}").id for n in range(3)]
    asyncio.run(work_off(ol))
    shown = run("dead", "--json").json
    assert [job["id"] for job in shown] == ids[::-1]
    assert [job["error"]["message"] for job in shown] == ["reason 2", "reason 1", "reason 0"]
    table = run("dead", "--queue", "docs").out
    assert all(text in table for text in (*ids, "reason 0", "reason 1", "reason 2"))
    assert run("dead", "--queue", "other").out == "No dead jobs.\n"


def test_the_owner_of_a_running_job_is_shown_and_so_is_its_loss(
    run: Commands, ol: Outlast, program: Program
) -> None:
    """R042: worker, host, pid, claim, heartbeat; after a kill, that the lease has expired."""
    id = run("enqueue", "wait_for", "--queue", "slow", "--args", '{"file": "/never"}').out.strip()
    worker = program.worker(OUTLAST_LEASE="1.5")
    patiently(lambda: ol.job(id).state == "running", message=worker.output)
    owner = run("job", id, "--json").json["owner"]
    (listed,) = run("workers", "--json").json
    assert owner["pid"] == worker.pid == listed["pid"]
    assert owner["host"] == socket.gethostname() == listed["host"]
    assert owner["worker"] == ol.job(id).worker == listed["id"]
    assert owner["claimed_at"] and owner["heartbeat_at"] and owner["lease_until"]
    assert owner["lease_expired"] is False
    assert listed["alive"] is True
    shown = run("job", id).out
    assert "state       running (lease valid for" in shown
    assert f"pid         {worker.pid}" in shown
    assert "heartbeat" in shown and "claimed" in shown

    worker.kill()
    patiently(lambda: "state       running (lease expired" in run("job", id).out)
    assert run("job", id, "--json").json["owner"]["lease_expired"] is True
    patiently(lambda: "silent" in run("workers").out)


def test_progress_and_logs_are_shown(run: Commands, ol: Outlast) -> None:
    @ol.task
    def talk(ctx: Context) -> None:
        ctx.progress(3, 10, "on the way")
        ctx.log("hello", colour="red")

    id = talk.enqueue().id
    asyncio.run(work_off(ol))
    shown = run("job", id).out
    assert "done=3, total=10, note=on the way" in shown
    assert "message=hello, colour=red" in shown
    assert [event["kind"] for event in run("job", id, "--json").json["events"]] == [
        "progress", "log",
    ]  # fmt: skip


def test_what_a_job_says_cannot_steer_the_terminal(run: Commands, ol: Outlast) -> None:
    hopeless = tasks(ol)["hopeless"]
    id = hopeless.enqueue(why="\x1b]0;owned\x07[red]bold[/red] \x9b31m").id
    asyncio.run(work_off(ol))
    for answer in (run("job", id), run("dead"), run("top", "--once"), run("job", id, "--json")):
        assert not set(answer.out) & {"\x1b", "\x07", "\x9b"}
        assert "[red]bold[/red]" in answer.out


def test_text_that_json_escapes_comes_out_as_it_went_in(run: Commands, ol: Outlast) -> None:
    id = tasks(ol)["hopeless"].enqueue(why="größer ✓ 日本").id
    answer = run("job", id, "--json")
    assert answer.out.isascii()
    assert json.loads(answer.out)["args"] == {"why": "größer ✓ 日本"}
    assert "größer ✓ 日本" in run("job", id).out


def test_an_unknown_job_is_not_found(run: Commands, database: Database) -> None:
    for id in ("nonsense", "0198c1f2-7d1e-7c3a-9f65-2b1f0c3d4e5f"):
        answer = run("job", id)
        assert answer.code == 1
        assert id in answer.err and answer.out == ""


def test_an_empty_database_has_nothing_to_show(run: Commands) -> None:
    assert run("jobs", "--json").json == []
    assert run("dead").out == "No dead jobs.\n"
    assert run("queues").out == "No queues yet.\n"
    assert run("workers").out == "No workers. Start one: outlast worker APP\n"
    assert "Nothing succeeded in the last minute." in run("top", "--once").out


def test_the_place_may_be_said_before_the_command_or_after_it(
    run: Commands, ol: Outlast, database: Database
) -> None:
    id = tasks(ol)["fine"].enqueue(n=1).id
    run.environment = {"OUTLAST_URL": "sqlite:////nowhere/at/all.db", "OUTLAST_SCHEMA": "nothing"}
    place = ("--url", database.url, "--schema", database.schema)
    assert run("jobs", "--json", *place).json[0]["id"] == id
    assert run(*place, "jobs", "--json").json[0]["id"] == id
    wrong = ("--url", "sqlite:////nowhere/either.db", "--schema", "wrong")
    assert run(*wrong, "jobs", "--json", *place).json[0]["id"] == id


@pytest.mark.kinds("sqlite")
def test_a_narrow_terminal_cuts_no_id(run: Commands, database: Database) -> None:
    """Its lines are wrapped by the terminal itself."""
    id = run("enqueue", "add").out.strip()
    main, side = pty.openpty()
    termios.tcsetwinsize(side, (24, 20))
    env = {"OUTLAST_URL": database.url, "OUTLAST_SCHEMA": database.schema, "TERM": "xterm"}
    without = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    command = [sys.executable, "-m", "outlast", "jobs"]
    try:
        subprocess.run(command, env=without | env, stdin=side, stdout=side, check=True)
        assert id in os.read(main, 65536).decode()
    finally:
        os.close(main)
        os.close(side)
