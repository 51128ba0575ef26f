"""A contender's process: what it is asked, what it answers, and how it ends."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from benchmarks.contender import Contender, chosen, found_in
from benchmarks.ground import Ground
from benchmarks.process import Failed, Process
from benchmarks.serve import MARK, Place, Seen, stamped
from benchmarks.stage import staged
from tests.support import eventually
from tests.support.processes import alive

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
