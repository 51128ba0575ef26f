"""The application of tests.support.app, for `outlast worker`, with a few tasks that end badly."""

from __future__ import annotations

from outlast import Permanent, Retry
from tests.support.app import from_environment

app = from_environment()
ol = app.ol


@ol.task
async def gives_up() -> None:
    raise Permanent("no way")


@ol.task(retry=Retry(max_attempts=2, base=0.0, jitter=0.0))
async def fails() -> None:
    raise RuntimeError("never")


@ol.task(name='"quoted\\" {x="1"} 🚜')
async def hostile() -> None: ...
