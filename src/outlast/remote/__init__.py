"""Remote workers: the same tasks, run over HTTP for a server. Needs `outlast[remote]`.

    from outlast.remote import RemoteWorker
    RemoteWorker("https://jobs.example.org", token, ol, queues=["mail"], concurrency=16).run()

In reading order:

    (protocol      the wire format, which the server shares)
    http_client    the connection to the server: one stream down, reports up
    worker         the worker, assembled from these parts
    session        state shared by the parts: the connection, tokens, the spool
    source         receives offers on a stream; accepts and starts jobs
    announcer      announces schedules of its code, which the server fires
    capacity       the number of jobs that it can accept
    reporter       sends outcomes, acceptances and events to the server
    spool          events on disk until the server has stored them
    leases         renewals, in the heartbeat thread
    steps_client   operations of handlers: steps, results
"""

from __future__ import annotations

from .worker import RemoteWorker

__all__ = ["RemoteWorker"]
