"""Metrics and health of a process and its database, over HTTP.

In reading order:

    catalogue    every metric: its name, meaning, labels and origin
    labels       queue and task names as labels, bounded in number and length
    snapshot     figures measured in the tables, cached, with their age
    collectors   samples of a worker, a supervisor and the tables
    gauges       figures that other parts of a process (such as the service) register
    exposition   samples as Prometheus text
    health       liveness and readiness of a process
    targets      the process that is reported on: a worker, a supervisor, a service
    routes       the responses at /metrics, /livez and /readyz
    http_server  a small HTTP server in its own thread, for processes without another

Each process reports its own work; figures of the tables are the same from every process. No job
waits for any of it.
"""

from __future__ import annotations

from .catalogue import CATALOGUE, Metric
from .exposition import Exposition, check_exporter
from .gauges import Gauges
from .health import Health
from .http_server import MetricsServer
from .routes import MetricsRoutes
from .snapshot import TableSnapshot
from .targets import ServiceTarget, SupervisorTarget, Target, WorkerTarget

__all__ = [
    "CATALOGUE",
    "Exposition",
    "Gauges",
    "Health",
    "Metric",
    "MetricsRoutes",
    "MetricsServer",
    "ServiceTarget",
    "SupervisorTarget",
    "TableSnapshot",
    "Target",
    "WorkerTarget",
    "check_exporter",
]
