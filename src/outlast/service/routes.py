"""THE table: every route of the service, collected from the parts that have some."""

from __future__ import annotations

from dataclasses import replace

from ..model.settings import ServiceSettings
from . import dashboard, health, login, openapi
from .api import enqueueing, flows, jobs, queues, results, steering, workers
from .dequeue import routes as dequeue
from .events import endpoints as events
from .route import PUBLIC, Route

__all__ = ["PUBLIC", "ROUTES", "Route"]

ROUTES: tuple[Route, ...] = (
    *openapi.ROUTES,
    *enqueueing.ROUTES,
    *jobs.ROUTES,
    *results.ROUTES,
    *steering.ROUTES,
    *flows.ROUTES,
    *queues.ROUTES,
    *workers.ROUTES,
    *events.ROUTES,
    *dequeue.ROUTES,
    *login.ROUTES,
    *health.ROUTES,
    *dashboard.ROUTES,
)


def table(settings: ServiceSettings) -> tuple[Route, ...]:
    """As these settings have it."""
    if not settings.open_metrics:
        return ROUTES
    return tuple(
        replace(route, scope=PUBLIC) if route.endpoint is health.metrics else route
        for route in ROUTES
    )
