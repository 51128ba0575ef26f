"""The deadline is of a call, not of each of its waits."""

from __future__ import annotations

import asyncio
import time
from contextlib import closing

import pytest

from outlast.model.errors import DeadlineExceeded
from outlast.model.settings import StoreSettings
from outlast.ops import job_actions
from outlast.ops.report import job
from outlast.store import open_store
from tests.store.conftest import Run
from tests.store.jobs import put
from tests.support import Database, Proxy

pytestmark = pytest.mark.kinds("postgres")


@pytest.mark.parametrize("colour", ["blocking", "asyncio"])
def test_a_slow_line_cannot_use_up_the_deadline_again_and_again(
    run: Run, database: Database, proxy: Proxy, colour: str
) -> None:
    """R169: four round trips of 0.8 s each, and 2 s for all of them."""
    (made,) = put(run)
    settings = StoreSettings(deadline=2.0)
    with closing(open_store(proxy.url(database.url), database.schema, settings)) as store:

        async def slowly() -> None:
            await store.arun(job, made.id)
            proxy.delay(0.4)
            began = time.monotonic()
            with pytest.raises(DeadlineExceeded, match=r"within 2\.0 s"):
                await store.arun(job_actions.cancel, made.id, "ann", "")
            assert time.monotonic() - began < 3.2, "the fourth round trip would have ended by then"
            proxy.delay(0)
            await store.aclose()

        if colour == "asyncio":
            asyncio.run(slowly())
            return
        store.run(job, made.id)
        proxy.delay(0.4)
        with pytest.raises(DeadlineExceeded, match=r"within 2\.0 s"):
            store.run(job_actions.cancel, made.id, "ann", "")
        proxy.delay(0)
        assert store.run(job, made.id).state == "ready", "what was not committed did not happen"
