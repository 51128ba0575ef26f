"""What every remote worker does, in whatever language: ours in Python, the example in JavaScript,
and those that poll, in JavaScript and in Python's standard library. Each test is a chapter of
docs/reference/remote-protocol.md."""

from __future__ import annotations

import pytest

from outlast import State
from tests.remote.fleet import EXAMPLE, EXAMPLES, PATIENCE, Fleet
from tests.support import eventually
from tests.support.tiers import slow_but

pytestmark = pytest.mark.kinds("postgres")
KINDS = ["python", "node", "polling-python", "polling-node"]
every_kind = pytest.mark.parametrize("kind", slow_but(["python", "node"], KINDS))


def test_the_example_is_short() -> None:
    for example in (EXAMPLE, EXAMPLES / "polling_worker.mjs"):
        assert len(example.read_text().splitlines()) < 100


@pytest.mark.slow_on("postgres")
@every_kind
def test_it_carries_out_jobs_and_says_how_they_ended(fleet: Fleet, kind: str) -> None:
    """R142"""
    fleet.serve()
    worker = fleet.work(kind)
    [added], [counted] = fleet.enqueue("add", a=2, b=3), fleet.enqueue("count", to=3)
    [failed], [refused] = fleet.enqueue("fail", message="no"), fleet.enqueue("refuse", message="no")
    assert fleet.ended(added).result == 5
    assert fleet.ended(counted).state is State.SUCCEEDED
    assert [event.data["done"] for event in fleet.ol.history(counted.id)[1]] == [1, 2, 3]
    assert fleet.ended(refused).state is State.DEAD
    eventually(lambda: fleet.ol.job(failed.id).state is State.SCHEDULED)
    assert (fleet.ol.job(failed.id).error or {})["message"] == "no"
    assert len(fleet.remote_workers()) == 1
    [held] = fleet.enqueue("nap", seconds=60)
    fleet.begun(held)
    worker.terminate()
    worker.succeed(PATIENCE)
    back = fleet.ol.job(held.id)
    assert (back.state, back.attempt, back.crashes) == (State.READY, 0, 0)
    assert fleet.remote_workers() == []


@pytest.mark.slow_on("sqlite")
@every_kind
def test_it_holds_on_to_its_jobs_and_stops_them_when_asked(fleet: Fleet, kind: str) -> None:
    """R039: for longer than a lease."""
    fleet.serve()
    fleet.work(kind)
    [long], [endless] = fleet.enqueue("nap", seconds=4), fleet.enqueue("nap", seconds=600)
    assert fleet.ended(long).result == 1
    fleet.ol.cancel(endless.id)
    assert fleet.ended(endless).state is State.CANCELLED


@pytest.mark.slow_on("postgres")
@every_kind
def test_the_death_of_its_server_costs_nothing(fleet: Fleet, kind: str) -> None:
    """R142: what runs runs on, and is reported to the next one."""
    server = fleet.serve(lease=15)
    fleet.work(kind)
    [job] = fleet.enqueue("nap", seconds=1)
    fleet.begun(job)
    server.kill()
    fleet.serve(lease=15)
    ended = fleet.ended(job)
    assert (ended.result, ended.crashes) == (1, 0)
    [after] = fleet.enqueue("add", a=1, b=1)
    assert fleet.ended(after).result == 2


@pytest.mark.slow_on("sqlite")
@every_kind
def test_what_a_killed_worker_was_running_runs_again(fleet: Fleet, kind: str) -> None:
    """R142: its lease speaks, and one crash is charged."""
    fleet.serve()
    worker = fleet.work(kind)
    [job] = fleet.enqueue("nap", seconds=2)
    fleet.begun(job)
    worker.kill()
    fleet.work(kind)
    ended = fleet.ended(job)
    assert (ended.result, ended.crashes) == (2, 1)


@pytest.mark.slow_on("postgres")
@every_kind
def test_a_worker_that_is_not_let_in_says_so_and_ends(fleet: Fleet, kind: str) -> None:
    """R198: by an error that does not show its token."""
    fleet.serve()
    fleet.token_file.write_text("olt_wrong")
    worker = fleet.work(kind)
    assert worker.wait(PATIENCE) != 0
    assert "refuse" in worker.output()
    assert "olt_wrong" not in worker.output()
