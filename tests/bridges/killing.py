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
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from outlast import Breaker, Context, Outlast, Retry
from outlast.bridges import Message, Sink, Source
from tests.support import Processes, eventually
from tests.support.app import TIMINGS
from tests.support.processes import Process

PATIENCE = 60.0
FOREVER = 3600.0  # the test ends the parent
SINK_STEPS = ("before send", "after send")
SOURCE_STEPS = ("after receive", "before acknowledge", "after acknowledge")


class Broker(Protocol):
    """What the tests need of a broker, beside its bridge. `put` and `sent` are the broker's other
    ends."""

    def sink(self) -> Sink: ...

    def source(self) -> Source: ...

    def put(self, messages: Sequence[Message]) -> None: ...

    def sent(self) -> list[Message]:
        """Everything that arrived at the sink, in order."""

    def left(self) -> int:
        """Messages that the source has not acknowledged."""


class Deadly:
    """Around a bridge: kills this process at a step."""

    def __init__(self, bridge: Any, step: str) -> None:
        self._bridge, self._step = bridge, step

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bridge, name)

    async def send(self, messages: Sequence[Message]) -> Any:
        self._at("before send")
        outcomes = await self._bridge.send(messages)
        self._at("after send")
        return outcomes

    async def receive(self, limit: int, wait: float) -> Any:
        messages = await self._bridge.receive(limit, wait)
        if messages:
            self._at("after receive")
        return messages

    async def acknowledge(self, messages: Sequence[Message]) -> None:
        self._at("before acknowledge")
        await self._bridge.acknowledge(messages)
        self._at("after acknowledge")

    def _at(self, step: str) -> None:
        if step == self._step:
            os.kill(os.getpid(), signal.SIGKILL)

    def __repr__(self) -> str:
        return repr(self._bridge)


class Bridged:
    """The program, in the test and in its worker processes."""

    def __init__(self, folder: Path, step: str = "") -> None:
        self.folder = folder
        self.broker: Broker = importlib.import_module(os.environ["OUTLAST_TEST_BROKER"])  # type: ignore[assignment]
        self.ol = Outlast()
        ran = folder / "ran"

        @self.ol.task(max_crashes=1000)  # each kill is one, of whatever runs at that moment
        async def sync(body: int, ctx: Context) -> None:
            assert ctx.message is not None
            with ran.open("a") as file:
                file.write(f"{ctx.message.id}\n")

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

    def ran(self) -> list[str]:
        file = self.folder / "ran"
        return file.read_text().split() if file.exists() else []

    def work(self, processes: Processes) -> Process:
        """A worker that nothing kills."""
        return processes.python("tests.bridges.killing", env=self._environment())

    def victims(self, processes: Processes) -> Victims:
        return Victims(
            processes.python("tests.bridges.killing", "victims", env=self._environment()),
            self.folder,
        )

    def _environment(self) -> dict[str, str]:
        timings = {f"OUTLAST_{name.upper()}": str(value) for name, value in TIMINGS.items()}
        return {"OUTLAST_TEST_FOLDER": str(self.folder), **timings}


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


def _fork_victims(folder: Path) -> None:
    """For each file `kill-N`: fork a worker, wait for its end, and write `ended-N`."""
    importlib.import_module(os.environ["OUTLAST_TEST_BROKER"])
    for number in itertools.count(1):
        asked = folder / f"kill-{number}"
        eventually(asked.exists, FOREVER, interval=0.01)
        child = os.fork()
        if child == 0:
            _work(folder, asked.read_text())
        _, status = os.waitpid(child, 0)
        _write(folder / f"ended-{number}", str(os.waitstatus_to_exitcode(status) * -1))


def _work(folder: Path, step: str) -> None:
    Bridged(folder, step).ol.worker().run()
    sys.exit(0)


if __name__ == "__main__":
    from outlast.worker.logs import set_up

    set_up("info")
    given = Path(os.environ["OUTLAST_TEST_FOLDER"])
    if sys.argv[1:] == ["victims"]:
        _fork_victims(given)
    _work(given, "")
