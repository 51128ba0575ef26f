"""An application whose tasks depend on something that can be away, for workers that are killed.

It is away while there is a file `down`. While there is a file `hang`, a call does not end.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from outlast import Breaker, Context, Outlast, Retry
from tests.support.app import App
from tests.support.processes import Process, Processes

QUICK = Breaker(failures=3, probe_first=0.2, probe_cap=0.3)


class Reliant(App):
    def __init__(self, url: str, schema: str, folder: Path) -> None:
        super().__init__(url, schema, folder)
        ledger, self.down, self.hang = self.ledger, folder / "down", folder / "hang"

        @self.ol.task(retry=Retry(max_attempts=2, base=0.05, jitter=0.0), breaker=QUICK)
        def push(n: int, ctx: Context) -> int:
            ledger.write("call", "push", ctx)
            while self.hang.exists() and not ctx.cancelled.is_set():
                time.sleep(0.02)
            if self.down.exists():
                raise ConnectionError("away")
            return n

        @self.ol.task(batch=500, wait=0.1, retry=Retry(max_attempts=3, base=0.1))
        def publish(items: list[int]) -> None:
            """As an outbox does; the breaker is the default one."""
            if self.down.exists():
                raise ConnectionError("away")

        self.push, self.publish = push, publish

    def work(self, processes: Processes, **settings: object) -> Process:
        return processes.python("tests.crash.outage", env=self.environment(**settings))


def here() -> Outlast:
    """In a worker process."""
    folder = Path(os.environ["OUTLAST_TEST_FOLDER"])
    return Reliant(os.environ["OUTLAST_URL"], os.environ["OUTLAST_SCHEMA"], folder).ol


if __name__ == "__main__":
    from outlast.worker.logs import set_up

    set_up("info")
    here().worker().run()
    sys.exit(0)
