"""Signal handlers that enqueue: Python runs them in the main thread, between any two steps."""

from __future__ import annotations

import pytest

from tests.support import Database, Processes

SCRIPT = """
import signal, threading, time
from outlast import Outlast, StoreBusy

ol = Outlast({url!r}, schema={schema!r})

@ol.task
def mark() -> None: ...

made = [mark.enqueue().id]
nested = refused = 0

def handle(*_):
    global nested, refused
    if nested:
        return
    nested = 1
    try:
        made.append(mark.enqueue().id)
    except StoreBusy as error:
        assert "signal handler" in str(error), error
        refused += 1
    finally:
        nested = 0

def others():
    while time.monotonic() < until:
        made.append(mark.enqueue().id)

until = time.monotonic() + {seconds}
threads = [threading.Thread(target=others) for _ in range({threads})]
for thread in threads:
    thread.start()
signal.signal(signal.SIGALRM, handle)
signal.setitimer(signal.ITIMER_REAL, 0.0023, 0.0023)
while time.monotonic() < until:
    made.append(mark.enqueue().id)
signal.setitimer(signal.ITIMER_REAL, 0)
for thread in threads:
    thread.join()
assert sorted(made) == sorted(job.id for job in ol.jobs(limit=1_000_000))
assert len(set(made)) == len(made)
print("all there")
"""


@pytest.mark.parametrize("threads", [0, 2])
def test_a_signal_handler_that_enqueues_does_not_wait_for_its_own_thread(
    database: Database, processes: Processes, threads: int
) -> None:
    """R193, R004: on PostgreSQL it gets a connection; on SQLite, in the middle of the transaction
    that it has interrupted, it is refused with what to do. Acknowledged jobs are there, once."""
    url, schema = database.url, database.schema
    script = SCRIPT.format(url=url, schema=schema, seconds=3.0, threads=threads)
    assert "all there" in processes.python(script).succeed(40)
