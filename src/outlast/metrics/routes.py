"""The responses at /metrics, /livez and /readyz, for any server."""

from __future__ import annotations

from http import HTTPStatus

from ..store import Store
from .collectors import Sample, TableCollector, process_samples
from .exposition import Exposition
from .health import DatabaseProbe, Health
from .snapshot import TableSnapshot
from .targets import Target

TEXT_PLAIN = "text/plain; charset=utf-8"

RawResponse = tuple[int, str, bytes]  # status, content type, body


class MetricsRoutes:
    """The response at each path."""

    def __init__(
        self, target: Target, store: Store | None, slow_store: Store | None = None
    ) -> None:
        """`slow_store` is for slow reads. Without a store, there are no table metrics."""
        self._target = target
        self._snapshot = TableSnapshot(slow_store or store) if store else None
        self._database = DatabaseProbe(store) if store else None
        self._table_collector = TableCollector()
        self._exposition = Exposition(
            target.origins,
            lambda: process_samples(target.role, self._snapshot),
            self._table_samples,
            target.samples,
        )

    async def respond(self, path: str, accept: str) -> RawResponse:
        match path:
            case "/metrics":
                if self._snapshot is not None:
                    await self._snapshot.latest()
                body, content_type = self._exposition.text(accept)
                return HTTPStatus.OK, content_type, body
            case "/livez":
                return health_response(self._target.alive())
            case "/readyz":
                database_health = await self._database.health() if self._database else Health()
                return health_response(
                    Health(database_health.reasons + self._target.ready().reasons)
                )
            case _:
                return error_response(HTTPStatus.NOT_FOUND)

    def _table_samples(self) -> list[Sample]:
        measured = self._snapshot.measured if self._snapshot else None
        return [] if measured is None else list(self._table_collector.samples(measured))

    async def aclose(self) -> None:
        for part in (self._snapshot, self._database):
            if part is not None:
                await part.aclose()


def health_response(health: Health) -> RawResponse:
    return health.status, TEXT_PLAIN, f"{health}\n".encode()


def error_response(status: HTTPStatus) -> RawResponse:
    return status, TEXT_PLAIN, f"{status.phrase}\n".encode()
