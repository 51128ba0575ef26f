"""Workers far from the database: the same tasks, run over a server. Needs `outlast[remote]`.

    from outlast.remote import RemoteWorker
    RemoteWorker("https://jobs.example.org", token, ol, queues=["mail"], concurrency=16).run()

In reading order:

    line      the connection to the server: one stream down, reports up
    frames    what comes down the stream
    worker    the worker: as a local one, but for where jobs come from and outcomes go
    room      how many jobs it can take
    reports   outcomes, acceptances and events on their way to the server
    spelling  how each of them looks on the line
    spool     what handlers said, on disk until the server has it
    keeper    renews, in a thread of its own
    far       what a handler may ask for: steps, results
"""

from __future__ import annotations

from .worker import RemoteWorker

__all__ = ["RemoteWorker"]
