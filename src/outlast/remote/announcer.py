"""Announcer: announces the schedules of a remote worker's code to the server, which fires them."""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Sequence

from ..loops import Loop
from ..model.errors import ServerRefused
from ..model.schedule_state import ScheduleDefinition
from ..model.task import Registry
from ..protocol import SCHEDULES_PATH, split_calls
from ..worker.schedules import ANNOUNCE_INTERVAL_S
from .http_client import PayloadRejected, ServerClient

log = logging.getLogger("outlast.worker")

CHECK_INTERVAL_S = 30.0  # for newly declared schedules: a check in memory, without a request


class ScheduleAnnouncer:
    def __init__(self, client: ServerClient, registry: Registry) -> None:
        self._client = client
        self._registry = registry
        self._announced: dict[str, ScheduleDefinition] = {}
        self._tried: dict[str, ScheduleDefinition] = {}  # announced, or refused by the server
        self._announce_at = -math.inf  # next announcement without changes
        self.loop = Loop("the announcement of schedules", self.run_once, CHECK_INTERVAL_S)

    async def run_once(self) -> None:
        declared = dict(self._registry.schedules)
        if declared == self._tried and (not declared or time.monotonic() < self._announce_at):
            return
        try:
            await self._announce(declared)
            self._announced = declared
        except (ServerRefused, PayloadRejected) as error:
            log.warning(
                "the %d schedules of this app are not announced: %s Use a token with the scopes"
                " work and enqueue for all tenants, or declare them in an app with the database",
                len(declared), error,
            )  # fmt: skip
        self._tried = declared
        self._announce_at = time.monotonic() + ANNOUNCE_INTERVAL_S / 2

    async def _announce(self, declared: dict[str, ScheduleDefinition]) -> None:
        """Announce the content first and after changes, and otherwise only names, because a newer
        deployment may have changed the content."""
        if declared == self._announced:
            await self._send("names", [json.dumps(name) for name in sorted(declared)])
            return
        changed = [
            json.dumps({"name": name, **one.content()})
            for name, one in sorted(declared.items())
            if self._announced.get(name) != one
        ]
        await self._send("schedules", changed)

    async def _send(self, field: str, items: Sequence[str]) -> None:
        for some in split_calls(items):
            body = f'{{"{field}":[{",".join(some)}]}}'
            done = await self._client.post(SCHEDULES_PATH, body)
            for name in done["added"]:
                log.info("schedule %s: added", name)
            for name in done["changed"]:
                log.info("schedule %s: changed to what code declares", name)
            for name in done["refused"]:
                log.warning("schedule %s: not announced, the name is in use elsewhere", name)
