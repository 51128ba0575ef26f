"""A contender's process: what it is asked, what it answers, and how it ends."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from textwrap import dedent

import pytest

from benchmarks.contender import Contender, chosen, found_in
from benchmarks.environments import equipped
from benchmarks.ground import Ground
from benchmarks.process import Failed, Process
from benchmarks.serve import MARK, Place, Seen, stamped
from benchmarks.stage import staged
from tests.support import eventually
from tests.support.processes import alive
from tests.support.requirements import require_program

TOY = """
    import asyncio

    NAME = "toy"
    STORES = ["sqlite", "redis"]
    REQUIRES = ["pytest[extra]>=8", "no-such-package==1.0"]
    CAN = ["async", "many"]
    DURABLE = False
    DURABILITY = "Nothing is kept."
    LATER = object()

    class Contender:
        def __init__(self, place, seen):
            self.place, self.seen, self.kept = place, seen, []

        def prepare(self):
            print("a library that talks", flush=True)

        async def enqueue(self, payload):
            await asyncio.sleep(0)
            self.kept.append(payload)

        def enqueue_many(self, payloads):
            self.kept += payloads

        async def left(self):
            return len(self.kept)

        async def work(self):
            while True:
                self.seen("x")
                await asyncio.sleep(0.001)

        def enqueue_slow(self, payloads, seconds):
            raise ValueError("not today")
"""


@pytest.fixture
def toys(tmp_path: Path) -> list[Contender]:
    folder = tmp_path / "contenders"
    folder.mkdir()
    (folder / "pytest.py").write_text(dedent(TOY))  # named like a library that is installed
    (folder / "__init__.py").touch()
    return found_in(folder)


NODE_TOY = """
    export const NAME = "toy-node";
    export const STORES = ["sqlite"];
    export const REQUIRES = ["@scope/no-such-package@2", "other"];
    export const CAN = ["async", "many"];
    export const DURABLE = false;
    export const DURABILITY = "Nothing is kept.";
    const other = () => 1;

    export class Contender {
      constructor(place, seen) { Object.assign(this, { place, seen, kept: [] }); }
      prepare() { console.log("a library that talks"); }
      async enqueue(payload) { this.kept.push(payload); }
      enqueue_many(payloads) { this.kept.push(...payloads); }
      left() { return this.kept.length; }
      enqueue_slow() { throw new TypeError("not today"); }

      async work() {
        for (;;) {
          this.seen("x");
          await new Promise((done) => setTimeout(done, 1));
        }
      }
    }
"""


@pytest.fixture
def process(toys: list[Contender], tmp_path: Path) -> Iterator[Process]:
    started = Process(toys[0], Place("sqlite", "", "outlast", str(tmp_path)))
    yield started
    started.kill()


def test_what_a_contender_says_of_itself_is_read_without_importing_it(
    toys: list[Contender],
) -> None:
    assert [toy.label for toy in toys] == ["toy/sqlite", "toy/redis"]
    assert toys[0].packages == ["pytest", "no-such-package"]
    assert (toys[0].kind, toys[0].durable, toys[0].interpreter) == ("peer", False, sys.executable)
    assert toys[0].lacks({"many", "wake", "fill"}) == ["fill", "wake"]


@pytest.mark.parametrize(
    ("names", "labels"),
    [
        ([], ["toy/sqlite", "toy/redis"]),
        (["toy"], ["toy/sqlite", "toy/redis"]),
        (["toy/redis"], ["toy/redis"]),
        (["/sqlite"], ["toy/sqlite"]),
        (["other"], []),
    ],
)
def test_contenders_are_chosen_by_name_label_or_store(
    toys: list[Contender], names: list[str], labels: list[str]
) -> None:
    assert [toy.label for toy in chosen(toys, names)] == labels


def test_requests_are_answered_whatever_libraries_print(process: Process) -> None:
    assert process.ask("prepare") is None
    times = process.ask("enqueue", n=3, size=10)
    assert times["began"] <= times["ended"] <= time.monotonic()
    process.ask("enqueue", n=2500, size=10, how="enqueue_many")
    assert process.ask("left")["left"] == 2503
    assert "a library that talks" in process.said(20)


def test_versions_are_those_of_its_own_environment(process: Process) -> None:
    versions = process.ask("versions", packages=["pytest", "no-such-package"])
    assert versions["pytest"] == pytest.__version__
    assert versions["no-such-package"] == "missing"


def test_enqueueing_begins_when_it_was_told_to(process: Process) -> None:
    at = time.monotonic() + 0.3
    assert process.ask("enqueue", n=1, size=1, at=at)["began"] >= at


def test_a_worker_answers_while_it_works(process: Process) -> None:
    process.ask("work")
    before = eventually(lambda: process.ask("count"))
    assert eventually(lambda: process.ask("count") > before)
    assert process.ask("seen")["count"] > before


def test_what_fails_is_said(process: Process) -> None:
    with pytest.raises(Failed, match="ValueError: not today"):
        process.ask("slow", n=1, seconds=1)
    with pytest.raises(Failed, match="it ended"):
        process.ask("left")


def test_who_cannot_tell_what_is_left_is_not_believed(
    toys: list[Contender], tmp_path: Path
) -> None:
    """Its drains would seem to be over before they began."""
    file = toys[0].file
    file.write_text(file.read_text().replace("return len(self.kept)", "return 0"))
    with staged(toys[0], Ground(tmp_path / "ground"), 10, 1) as stage:
        client = stage.client()
        with pytest.raises(Failed, match="10 were enqueued, and it says that 0 are left"):
            stage.preload(client, 10, 100)


@pytest.mark.parametrize("working", [False, True])
def test_nobody_is_left_when_the_runner_is_gone(process: Process, working: bool) -> None:
    """R189: its standard input ends, however the runner did."""
    if working:
        process.ask("work")
    assert alive(process.pid)
    process.let_go()
    eventually(lambda: not alive(process.pid), 10.0)


def test_marks_stand_at_the_first_and_at_each_hundredth() -> None:
    one_by_one, batches = Seen(), Seen()
    for _ in range(2 * MARK + 1):
        one_by_one("x")
    for n in (1, MARK // 10 - 1, MARK - MARK // 10, MARK, 1):
        batches.batch(n)
    assert one_by_one.count == batches.count == 2 * MARK + 1
    assert len(one_by_one.marks) == len(batches.marks) == 3


def test_a_stamp_says_how_long_ago_it_was_made() -> None:
    seen = Seen()
    payload = stamped(100)
    assert len(payload) == 100
    time.sleep(0.02)  # what is measured is time itself
    seen(payload)
    seen("x" * 100)
    (delay,) = seen.delays
    assert 0.02 <= delay < 5


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Process]:
    require_program("npm")
    (tmp_path / "toy.mjs").write_text(dedent(NODE_TOY))
    (toy,) = found_in(tmp_path)
    assert (toy.label, toy.durable) == ("toy-node/sqlite", False)
    assert toy.packages == ["@scope/no-such-package", "other"]
    ready = equipped(replace(toy, requires=()), tmp_path / "venvs")
    started = Process(ready, Place("sqlite", "", "outlast", str(tmp_path)))
    yield started
    started.kill()


def test_a_contender_for_node_answers_the_same(node: Process) -> None:
    """Its clock is that of the others."""
    assert "node" in node.ask("versions", packages=[])
    assert node.ask("prepare") is None
    before = time.monotonic()
    times = node.ask("enqueue", n=3, size=10, at=before + 0.1)
    assert before + 0.1 <= times["began"] <= times["ended"] <= time.monotonic()
    node.ask("enqueue", n=2500, size=10, how="enqueue_many")
    assert node.ask("left")["left"] == 2503
    node.ask("drip", n=1, every=0.001)
    assert node.ask("pour", rate=1000, seconds=0.05, size=100) > 0
    node.ask("work")
    eventually(lambda: node.ask("count") > MARK)
    seen = node.ask("seen")
    assert len(seen["marks"]) == 1 + (seen["count"] - 1) // MARK
    assert seen["marks"][0] <= seen["last"] <= time.monotonic()
    assert "a library that talks" in node.said(20)


def test_a_contender_for_node_says_what_fails_and_ends_with_the_runner(node: Process) -> None:
    """R189"""
    with pytest.raises(Failed, match="TypeError: not today"):
        node.ask("slow", n=1, seconds=1)
    eventually(lambda: not alive(node.pid), 10.0)
