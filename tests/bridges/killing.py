"""A program with an outbox and a source that kills itself at a named step, whichever broker.

`OUTLAST_TEST_BROKER` names a module with `sink()`, `source()`, `put(messages)`, `sent()`, `left()`.
A step is deadly once for each file `kill-N` in the folder of the test, which goes first.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from outlast import Breaker, Context, Outlast, Retry
from outlast.bridges import Message, Sink, Source
from tests.support import Processes
from tests.support.app import TIMINGS
from tests.support.processes import Process

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
    """Around a bridge: kills this process at a step, while there are files that say so."""

    def __init__(self, bridge: Any, step: str, folder: Path) -> None:
        self._bridge, self._step, self._folder = bridge, step, folder

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
        if step != self._step:
            return
        for file in self._folder.glob("kill-*"):
            file.unlink()
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

        @self.ol.task
        async def sync(body: int, ctx: Context) -> None:
            assert ctx.message is not None
            with ran.open("a") as file:
                file.write(f"{ctx.message.id}\n")

        self.outbox = self.ol.outbox(
            "orders",
            Deadly(self.broker.sink(), step, folder),
            batch=20,
            max_crashes=1000,
            retry=Retry(max_attempts=1000, base=0.05, cap=0.2),
            breaker=Breaker(probe_first=0.1, probe_cap=0.3),
        )
        source = Deadly(self.broker.source(), step, folder)
        self.ol.source("mail", source, task=sync, batch=10, wait=1)

    def ran(self) -> list[str]:
        file = self.folder / "ran"
        return file.read_text().split() if file.exists() else []

    def work(self, processes: Processes, step: str = "") -> Process:
        env = {"OUTLAST_TEST_FOLDER": str(self.folder), "OUTLAST_TEST_STEP": step}
        env |= {f"OUTLAST_{name.upper()}": str(value) for name, value in TIMINGS.items()}
        return processes.python("tests.bridges.killing", env=env)


if __name__ == "__main__":
    from outlast.worker.logs import set_up

    set_up("info")
    app = Bridged(Path(os.environ["OUTLAST_TEST_FOLDER"]), os.environ["OUTLAST_TEST_STEP"])
    app.ol.worker().run()
    sys.exit(0)
