"""An application with batch tasks, for worker processes that are killed and stopped."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from outlast import BatchContext, Outlast, Retry
from tests.support.app import App
from tests.support.processes import Process, Processes


class Batching(App):
    def __init__(self, url: str, schema: str, folder: Path) -> None:
        super().__init__(url, schema, folder)
        ledger = self.ledger

        @self.ol.task(batch=100, wait=0.3, retry=Retry(max_attempts=3, base=0.1, jitter=0.0))
        def publish(items: list[int], ctx: BatchContext) -> list[int]:
            """Writes each item down, then waits for the gate, under a first claim."""
            for own in ctx.items:
                ledger.write("start", "publish", own)
            while ctx.items[0].fence == 1 and not (folder / "gate").exists():
                if ctx.cancelled.wait(0.02):
                    raise InterruptedError("told to stop")
            for own in ctx.items:
                ledger.write("end", "publish", own)
            return items

        @self.ol.task(batch=100, wait=60.0)
        def gathers(items: list[int]) -> None: ...

        @self.ol.task(batch=100, wait=0.2)
        def explode(items: list[str], ctx: BatchContext) -> None:
            """Takes its process along if the poison is among its items."""
            for own in ctx.items:
                ledger.write("start", "explode", own)
            if "poison" in items:
                time.sleep(0.1)
                os._exit(3)

        self.publish, self.gathers, self.explode = publish, gathers, explode

    def work(self, processes: Processes, **settings: object) -> Process:
        env = self.environment(**settings)
        return processes.python("tests.crash.batching", env=env)

    def fleet(self, processes: Processes, number: int, **settings: object) -> Process:
        module = "from tests.crash.batching import here\n\nol = here()\n"
        (processes.folder / "the_batches.py").write_text(module)
        arguments = ("worker", "the_batches:ol", "--processes", number)
        return processes.python("outlast", *arguments, env=self.environment(**settings))


def here() -> Outlast:
    """In a worker process."""
    folder = Path(os.environ["OUTLAST_TEST_FOLDER"])
    return Batching(os.environ["OUTLAST_URL"], os.environ["OUTLAST_SCHEMA"], folder).ol


if __name__ == "__main__":
    from outlast.worker.logs import set_up

    set_up("info")
    here().worker().run()
    sys.exit(0)
