"""`outlast verify flows`: a sample on both databases, and what it asks for."""

from __future__ import annotations

import json
import random
import signal
import sys
from collections import Counter

import pytest

from outlast.model.flow_builder import build_jobs
from outlast.verify.graphs import SHAPES, GraphGenerator
from outlast.verify.workload import Workload
from outlast.verify.workspace import WorkspaceFactory
from tests.support import Database, Processes, eventually
from tests.verify.running import run, start
from tests.verify.test_command import group
from tests.verify.test_crash import left


@pytest.mark.slow
def test_whatever_happens_every_follower_runs_once_or_says_why_not(
    processes: Processes, database: Database
) -> None:
    """R093–R109, R132: graphs of every shape, workers killed, flows and jobs cancelled."""
    said = run(processes, "flows", database, "--seed", 1, "--points", 150, "--budget", 8)
    assert said["violations"] == 0, said["wrong"]
    assert said["fan_ins"] > 0
    assert sum(said["sizes"].values()) == said["fan_ins"]
    assert said["jobs"] > said["flows"]
    assert left(database) == []


@pytest.mark.kinds("sqlite")
@pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")
def test_whoever_interrupts_it_finds_everything_removed(
    processes: Processes, database: Database
) -> None:
    running = start(processes, "flows", "--url", database.url, "--budget", "5m")
    eventually(lambda: len(group(running)) > 5, 30.0, message=running.output)
    running.signal(signal.SIGTERM)
    assert running.wait(20.0) == 130
    assert left(database) == []
    eventually(lambda: group(running) == [])


@pytest.mark.campaign
def test_ten_thousand_fan_ins(processes: Processes, database: Database) -> None:
    """R091, R092, R096: of 1 to 1,000 children, with kills, cancels and dead children."""
    words = ["--url", database.url, "--json", "--points", 10_000, "--budget", "10m"]
    start(processes, "flows", *words).succeed(1800.0)


@pytest.fixture
def artist(database: Database) -> GraphGenerator:
    site = WorkspaceFactory(database.url)
    work = Workload(site.next())
    return GraphGenerator(work.flows, random.Random(1), "t")


@pytest.mark.kinds("sqlite")
def test_what_is_drawn_is_what_is_laid_out(artist: GraphGenerator) -> None:
    """What the judge is told was asked for is what a caller would have meant by it."""
    shapes: Counter[str] = Counter()
    for _ in range(400):
        sketch = artist.generate()
        jobs = build_jobs([sketch.item])
        tags = {job.id: _tag(job.args) for job in jobs}
        laid = {_tag(job.args): tuple(tags[one] for one in job.after) for job in jobs}
        assert laid == {node.tag: node.after for node in sketch.nodes}
        shapes[sketch.shape] += 1
    assert set(shapes) == {shape for shape, _ in SHAPES}


@pytest.mark.kinds("sqlite")
def test_most_fan_ins_are_small_and_some_are_large(artist: GraphGenerator) -> None:
    sizes = [size for _ in range(3000) for size in artist.generate().fan_ins]
    assert min(sizes) == 1
    assert max(sizes) == 1000
    assert sum(size < 10 for size in sizes) > 0.7 * len(sizes)
    assert sum(sizes) / len(sizes) < 20


def _tag(args: str) -> str:
    return str(json.loads(args)["tag"])
