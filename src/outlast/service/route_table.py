"""The route table: every route of the service, collected from its parts."""

from __future__ import annotations

from dataclasses import replace

from ..model.settings import ServiceSettings
from . import dashboard, health, hook_route, link_routes, openapi
from .api import enqueue, flows, job_actions, jobs, queues, results, schedules, signals, workers
from .auth import login
from .dequeue import routes as dequeue
from .events import routes as events
from .route import PUBLIC, Route

__all__ = ["PUBLIC", "ROUTES", "Route"]

ROUTES: tuple[Route, ...] = (
    *openapi.ROUTES,
    *enqueue.ROUTES,
    *jobs.ROUTES,
    *results.ROUTES,
    *job_actions.ROUTES,
    *signals.ROUTES,
    *flows.ROUTES,
    *queues.ROUTES,
    *schedules.ROUTES,
    *workers.ROUTES,
    *events.ROUTES,
    *dequeue.ROUTES,
    *hook_route.ROUTES,
    *link_routes.ROUTES,
    *login.ROUTES,
    *health.ROUTES,
    *dashboard.ROUTES,
)


def enabled_routes(settings: ServiceSettings) -> tuple[Route, ...]:
    """The routes under these settings."""
    if not settings.open_metrics:
        return ROUTES
    return tuple(
        replace(route, scope=PUBLIC) if route.endpoint is health.metrics else route
        for route in ROUTES
    )
