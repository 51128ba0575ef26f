"""Servers and remote workers die at bad moments, and nothing is lost of it."""

from __future__ import annotations

import itertools
import random
import time
from statistics import median

import pytest

from outlast import State
from tests.remote.fleet import Fleet
from tests.service.serving import serving
from tests.service.streaming import Streamed
from tests.support import eventually, rounds

DIES = """
    import sys
    from tests.support.points import arm
    from outlast.cli import main

    arm("committed claim_offers")
    main()
    """


def test_a_server_killed_between_claim_and_send_costs_no_job_anything(fleet: Fleet) -> None:
    """R040: another one sees its death, long before the offers' leases end."""
    [job] = fleet.enqueue("add", a=1, b=1)
    dying = fleet.serve(DIES, offer=60.0)
    worker = fleet.work()
    eventually(lambda: dying.ended, 30, message=worker.output)
    began = time.monotonic()
    assert fleet.ol.job(job.id).state is State.RUNNING
    fleet.serve()
    ended = fleet.ended(job)
    assert (ended.attempt, ended.crashes, ended.failures) == (1, 0, 0)
    assert time.monotonic() - began < 30
    [released] = fleet.ol.history(job.id)[0][:1]
    assert released.outcome == "released"


@pytest.mark.kinds("postgres")
def test_servers_are_killed_between_claim_and_send_beside_another(fleet: Fleet) -> None:
    """R040"""
    kill_between_claim_and_send(fleet, times=1)


@pytest.mark.campaign
@pytest.mark.timeout(1200)
@pytest.mark.kinds("postgres")
def test_50_servers_are_killed_between_claim_and_send_beside_another(fleet: Fleet) -> None:
    """R040"""
    kill_between_claim_and_send(fleet, times=50)


def kill_between_claim_and_send(fleet: Fleet, times: int) -> None:
    """All five that were claimed can be claimed again, long before their offers would end."""
    jobs = fleet.enqueue("add", number=5, a=1, b=1)
    token = fleet.token_file.read_text()
    took = []
    with serving(fleet.ol):
        for _ in rounds(times, "killed between claim and send"):
            dying = fleet.serve(DIES, offer=60.0)
            with Streamed(fleet.url, token, tasks="add", credit=9):
                dying.wait(30)
            began = time.monotonic()
            eventually(lambda: fleet.ol.counts()["ready"] == 5, 30, message=lambda: told(fleet))
            took.append(time.monotonic() - began)
    now = [fleet.ol.job(job.id) for job in jobs]
    assert {(job.attempt, job.crashes, job.failures) for job in now} == {(0, 0, 0)}
    print(f"{times} kills; back within {max(took):.1f} s, half within {median(took):.1f} s")


def told(fleet: Fleet) -> str:
    return str(fleet.ol.jobs())


@pytest.mark.kinds("postgres")
def test_what_a_worker_had_said_when_it_was_killed_arrives_once(fleet: Fleet) -> None:
    """R139: fifty things, none of them sent; whoever starts next on that machine sends them."""
    fleet.serve()
    [job] = fleet.enqueue("say_and_die", things=50)
    dying = fleet.work()
    eventually(lambda: dying.ended, 30, message=dying.output)
    fleet.work()
    fleet.ended(job)

    def said() -> list[tuple[int | None, int]]:
        events = fleet.ol.history(job.id)[1]
        return [(event.attempt, event.data["n"]) for event in events if event.kind == "log"]

    everything = {(attempt, n) for attempt in (1, 2) for n in range(50)}
    eventually(lambda: set(said()) == everything)
    assert len(said()) == 100
    assert not list((fleet.folder / "spool").glob("*/*.refused"))


@pytest.mark.timeout(300)  # longer than what it waits for
@pytest.mark.kinds("postgres")
def test_servers_are_killed_and_no_job_is_lost(fleet: Fleet) -> None:
    """R142"""
    kill_servers(fleet, workers=3, kills=2, every=1.0)


@pytest.mark.campaign
@pytest.mark.timeout(1200)
@pytest.mark.kinds("postgres")
def test_the_server_is_killed_every_5_s_for_2_minutes_with_20_workers(fleet: Fleet) -> None:
    """R142"""
    kill_servers(fleet, workers=20, kills=24, every=5.0)


def kill_servers(fleet: Fleet, workers: int, kills: int, every: float) -> None:
    server = fleet.serve(lease=15.0)
    kinds = itertools.cycle(["python", "node"])
    crew = [fleet.work(next(kinds)) for _ in range(workers)]
    jobs = []
    for _ in rounds(kills, "servers killed"):
        until = time.monotonic() + every
        while time.monotonic() < until:
            jobs += fleet.enqueue("nap", number=workers, seconds=random.uniform(0.0, 0.3))
            jobs += fleet.enqueue("add", number=5, a=1, b=2)
            time.sleep(0.1)
        server.kill()
        server = fleet.serve(lease=15.0)
    eventually(lambda: not open_jobs(fleet), 120, 0.1, message=lambda: str(fleet.ol.counts()))
    counts = fleet.ol.counts()
    assert counts["succeeded"] == len(jobs)
    assert not any(worker.ended for worker in crew)
    print(
        f"{len(jobs)} jobs, {kills} kills, {sum(fleet.ol.job(j.id).crashes for j in jobs)} crashes"
    )


def open_jobs(fleet: Fleet) -> int:
    counts = fleet.ol.counts()
    return sum(counts[state] for state in ("waiting", "scheduled", "ready", "running"))
