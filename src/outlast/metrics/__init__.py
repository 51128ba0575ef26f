"""What a process can be asked about itself and its database: metrics and health, over HTTP.

In reading order:

    catalogue   every metric that there is, what it means, and who has it
    labels      names of queues and tasks as labels: bounded, and never what breaks a scrape
    snapshot    what is measured in the tables: asked for seldom, kept, and its age told
    sources     what a worker, a supervisor and the tables have to say, as samples
    gauges      what other parts of a process (such as the service) want to be told with it
    exposition  samples as Prometheus text
    health      is this process alive, and is what it needs there?
    subjects    whom all this is about: a worker, a supervisor, a service
    answers     what is said at /metrics, /livez and /readyz
    endpoint    a small HTTP server in a thread of its own, for processes that have no other

Every process says what it did itself; what is measured in the tables is the same wherever it is
asked for. Nothing here is on a job's way: work goes on whether anybody asks or not.
"""

from __future__ import annotations

from .answers import Answers
from .catalogue import CATALOGUE, Metric
from .endpoint import Endpoint
from .exposition import Exposition, check_exporter
from .gauges import Gauges
from .health import Verdict
from .snapshot import Snapshot
from .subjects import OneService, OneSupervisor, OneWorker, Subject

__all__ = [
    "CATALOGUE",
    "Answers",
    "Endpoint",
    "Exposition",
    "Gauges",
    "Metric",
    "OneService",
    "OneSupervisor",
    "OneWorker",
    "Snapshot",
    "Subject",
    "Verdict",
    "check_exporter",
]
