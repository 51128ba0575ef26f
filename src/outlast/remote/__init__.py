"""Remote workers: the same tasks, run over HTTP for a server. Needs `outlast[remote]`.

    from outlast.remote import RemoteWorker
    RemoteWorker("https://jobs.example.org", token, ol, queues=["mail"], concurrency=16).run()

In reading order:

    (protocol      the wire format, which the server shares)
    http_client    the connection to the server: one stream down, reports up
    worker         the worker, put together from these parts
    session        what the parts share: the connection, tokens, the spool
    source         offers down the stream; accepts and starts jobs
    announcer      schedules of its code, for the server to fire
    capacity       how many jobs it can take
    reporter       outcomes, acceptances and events on their way to the server
    spool          events on disk until the server has them
    leases         renewals, in the heartbeat thread
    steps_client   operations that handlers ask for: steps, results
"""

from __future__ import annotations

from .worker import RemoteWorker

__all__ = ["RemoteWorker"]
