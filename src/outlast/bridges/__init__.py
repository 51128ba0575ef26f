"""Bridges to message brokers: outboxes that publish, and sources whose messages become jobs.

protocols     `Sink` and `Source`: the interface of a broker; a user's own is 30 lines
outbox        `ol.outbox(…)`: publish in the caller's transaction
relay         one batch of an outbox: chunks, order per key, the outcome of each message
inbox         `ol.source(…)`: its declaration, and the conversion of messages to jobs
source_loop   receive, insert, commit, acknowledge
hook          the same for webhooks, which the service receives: `http` with `signatures`
session       an open sink or source, one per event loop
redis, …      one file per broker; its client is an extra, imported when it connects
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .http import Http
    from .kafka import Kafka
    from .nats import Nats
    from .outbox import Outbox
    from .protocols import Bad, Limits, Message, Retry, Sink, SinkDown, Source
    from .rabbit import Rabbit
    from .redis import Redis
    from .sns import Sns
    from .sqs import Sqs

_HOMES = {  # all others are in `protocols`
    "Http": "http",
    "Kafka": "kafka",
    "Nats": "nats",
    "Outbox": "outbox",
    "Rabbit": "rabbit",
    "Redis": "redis",
    "Sns": "sns",
    "Sqs": "sqs",
}

__all__ = [
    "Bad",
    "Http",
    "Kafka",
    "Limits",
    "Message",
    "Nats",
    "Outbox",
    "Rabbit",
    "Redis",
    "Retry",
    "Sink",
    "SinkDown",
    "Sns",
    "Source",
    "Sqs",
]


def __getattr__(name: str) -> Any:
    """Import a bridge on first use: each broker needs only its own client library."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{_HOMES.get(name, 'protocols')}", __name__), name)
    globals()[name] = value
    return value
