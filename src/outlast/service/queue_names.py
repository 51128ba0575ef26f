"""How many queue names one tenant may use: each costs every worker a little.

A name counts while it has jobs that are not finished. Names are compared with the census, which is
counted now and then for whoever asks, and only if a name was not used here lately: the path of an
ordinary enqueue is a look into a dictionary. Several servers, and a census that is a moment old,
make the limit a soft one.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..model.errors import StoreError
from ..model.job import NewJob
from ..model.lifecycle import QUEUED, State
from .problems import Conflict, Unavailable

if TYPE_CHECKING:
    from .census import Census

LATELY_S = 60.0  # for which a name that was accepted is not looked up again
MOST_KEPT = 100_000  # names of all tenants

UNFINISHED = frozenset(map(str, (*QUEUED, State.RUNNING)))


class TooManyQueues(Conflict):
    kind = "too-many-queues"


class QueueNames:
    def __init__(self, census: Census, most: int) -> None:
        self._census = census
        self._most = most
        self._lately: defaultdict[str, dict[str, float]] = defaultdict(dict)  # by tenant

    async def admit(self, jobs: Iterable[NewJob]) -> None:
        """Refuse jobs of queues that would be too many for their tenant."""
        now = time.monotonic()
        fresh: defaultdict[str, set[str]] = defaultdict(set)
        for job in jobs:
            if self._lately[job.tenant].get(job.queue, 0.0) < now:
                fresh[job.tenant].add(job.queue)
        for tenant, names in fresh.items():
            await self._look_up(tenant, names)

    async def _look_up(self, tenant: str, names: set[str]) -> None:
        lately = self._lately[tenant]
        try:
            counted = await self._census.counted_soon()
        except (StoreError, Unavailable):
            counted = None
        if counted is None:
            return  # not known yet: the next one is looked up again
        used = {k.queue for k in counted.kinds if k.tenant == tenant and k.state in UNFINISHED}
        # Those accepted since it was counted may not be among them.
        used |= {name for name, until in lately.items() if until - LATELY_S >= counted.made}
        if names - used and len(used | names) > self._most:
            raise TooManyQueues(
                f"this tenant has unfinished jobs in {len(used):,} queues, and may have them in"
                f" {self._most:,} (max_queues): use fewer names, or wait until jobs are finished"
            )
        if sum(map(len, self._lately.values())) > MOST_KEPT:
            self._lately.clear()
        until = time.monotonic() + LATELY_S
        self._lately[tenant] |= dict.fromkeys(names, until)
