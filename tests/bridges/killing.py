"""A program with an outbox and a source that kills itself at a named step, whichever broker.

`OUTLAST_TEST_BROKER` names a module with `sink()`, `source()`, `put(messages)`, `sent()`, `left()`.
The program forks a child for each step that it is asked for, in which that step is deadly: so a
hundred kills need not import everything a hundred times.
"""

from __future__ import annotations

import importlib
import itertools
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from outlast import Breaker, Call, Context, Outlast, Retry
from outlast.bridges import Message, Sink, Source
from outlast.task import BoundTask
from tests.support import Processes, eventually
from tests.support.app import TIMINGS
from tests.support.points import arm
from tests.support.processes import Process

PATIENCE = 60.0
FOREVER = 3600.0  # the test ends the parent
SINK_STEPS = ("before send", "after send", "before mark")
SOURCE_STEPS = ("after receive", "after commit", "before acknowledge", "after acknowledge")
COMMITTED = ("committed insert_jobs",)
UNMARKED = ("before finish", "before succeed")  # whichever statement it is
STORE_POINTS = {"after commit": COMMITTED, "before mark": UNMARKED}


class Ends(Protocol):
    """The other ends of a source and a sink."""

    def put(self, messages: Sequence[Message]) -> None: ...

    def sent(self) -> list[Message]:
        """Everything that arrived at the sink, in order."""

    def left(self) -> int:
        """Messages that the source has not acknowledged."""


class Broker(Ends, Protocol):
    """What the tests need of a broker."""

    def sink(self) -> Sink: ...

    def source(self) -> Source: ...


class Deadly:
    """Around a bridge, or something like it: kills this process at a step."""

    def __init__(self, bridge: Any, step: str) -> None:
        self._bridge, self._step = bridge, step

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bridge, name)

    async def send(self, messages: Sequence[Message]) -> Any:
        self.at("before send")
        outcomes = await self._bridge.send(messages)
        self.at("after send")
        return outcomes

    async def receive(self, limit: int, wait: float) -> Any:
        messages = await self._bridge.receive(limit, wait)
        if messages:
            self.at("after receive")
        return messages

    async def acknowledge(self, messages: Sequence[Message]) -> None:
        self.at("before acknowledge")
        await self._bridge.acknowledge(messages)
        self.at("after acknowledge")

    def at(self, step: str) -> None:
        if step == self._step:
            os.kill(os.getpid(), signal.SIGKILL)

    def __repr__(self) -> str:
        return repr(self._bridge)


class Killable(Protocol):
    """A program with a sink and a source, as `kill_checks` uses it."""

    ol: Outlast
    per_turn: int  # messages for each kill

    @property
    def broker(self) -> Ends: ...

    def message(self, body: int, key: str | None) -> Call[Any]:
        """What the sink is to be sent."""

    def ran(self) -> list[str]:
        """The ids of messages that the source's task was called with."""

    def work(self, processes: Processes) -> Process:
        """A worker that nothing kills."""

    def victims(self, processes: Processes) -> Victims: ...


class Bridged:
    """The program, in the test and in its worker processes."""

    PROGRAM = "tests.bridges.killing"

    def __init__(self, folder: Path, step: str = "") -> None:
        self.folder = folder
        self.broker: Broker = importlib.import_module(os.environ["OUTLAST_TEST_BROKER"])  # type: ignore[assignment]
        self.per_turn = getattr(self.broker, "PER_TURN", 30)
        self.ol = Outlast()
        sync = sync_task(self.ol, folder)
        self.outbox = self.ol.outbox(
            "orders",
            Deadly(self.broker.sink(), step),
            batch=20,
            max_crashes=1000,
            retry=Retry(max_attempts=1000, base=0.05, cap=0.2),
            breaker=Breaker(probe_first=0.1, probe_cap=0.3),
        )
        source = Deadly(self.broker.source(), step)
        self.ol.source("mail", source, task=sync, batch=10, wait=1)

    def message(self, body: int, key: str | None) -> Call[None]:
        return self.outbox.message(body, key=key)

    def ran(self) -> list[str]:
        file = self.folder / "ran"
        return file.read_text().split() if file.exists() else []

    def work(self, processes: Processes) -> Process:
        return processes.python(self.PROGRAM, env=self._environment())

    def victims(self, processes: Processes) -> Victims:
        parent = processes.python(self.PROGRAM, "victims", env=self._environment())
        return Victims(parent, self.folder)

    def _environment(self) -> dict[str, str]:
        timings = {f"OUTLAST_{name.upper()}": str(value) for name, value in TIMINGS.items()}
        return {"OUTLAST_TEST_FOLDER": str(self.folder), **timings}


def sync_task(ol: Outlast, folder: Path) -> BoundTask[..., None]:
    """The task of the source, which notes the messages that it was called with."""
    ran = folder / "ran"

    @ol.task(max_crashes=1000)  # each kill is one, of whatever runs at that moment
    async def sync(body: int, ctx: Context) -> None:
        assert ctx.message is not None
        with ran.open("a") as file:
            file.write(f"{ctx.message.id}\n")

    return sync


class Victims:
    """The parent of processes that kill themselves, one at a time. Files are how it is asked."""

    def __init__(self, parent: Process, folder: Path) -> None:
        self._parent, self._folder, self._number = parent, folder, 0

    def kill(self, step: str) -> None:
        """Start one, and wait until it has died at the step."""
        self._number += 1
        ended = self._folder / f"ended-{self._number}"
        _write(self._folder / f"kill-{self._number}", step)
        eventually(ended.exists, PATIENCE, message=self._parent.output)
        assert ended.read_text() == str(signal.SIGKILL.value), self._parent.output()

    def end(self) -> None:
        self._parent.kill()


def _write(file: Path, text: str) -> None:
    """At once: the other process must not read half of it."""
    whole = file.with_suffix(".part")
    whole.write_text(text)
    whole.rename(file)


def fork_victims(folder: Path, work: Callable[[Path, str], None]) -> None:
    """For each file `kill-N`: fork a worker, wait for its end, and write `ended-N`."""
    for number in itertools.count(1):
        asked = folder / f"kill-{number}"
        eventually(asked.exists, FOREVER, interval=0.01)
        child = os.fork()
        if child == 0:
            work(folder, asked.read_text())
        _, status = os.waitpid(child, 0)
        _write(folder / f"ended-{number}", str(os.waitstatus_to_exitcode(status) * -1))


def _work(folder: Path, step: str) -> None:
    for point in STORE_POINTS.get(step, ()):
        arm(point)
    Bridged(folder, step).ol.worker().run()
    sys.exit(0)


if __name__ == "__main__":
    from outlast.worker.logs import set_up

    set_up("info")
    given = Path(os.environ["OUTLAST_TEST_FOLDER"])
    if sys.argv[1:] == ["victims"]:
        importlib.import_module(os.environ["OUTLAST_TEST_BROKER"])  # once for all of them
        fork_victims(given, _work)
    _work(given, "")
