"""Forks while handlers write on connections that they were lent."""

from __future__ import annotations

import pytest

from tests.support import Database, Processes

FORKING = """
import os, sqlite3, threading
from contextlib import suppress
from outlast import Outlast, OutlastError
from outlast.store.handler_connection import open_transaction

ol = Outlast()
ol.migrate()
enough = threading.Event()
written = 0

def write():
    global written
    while not enough.is_set():
        # Closed before a fork: then the handler begins again.
        with suppress(sqlite3.Error, OutlastError), open_transaction(ol.store) as lent:
            lent.connection.execute("CREATE TABLE IF NOT EXISTS mine (n)")
            lent.connection.executemany("INSERT INTO mine VALUES (?)", [(n,) for n in range(50)])
            lent.connection.execute("SELECT count(*) FROM mine").fetchall()
            lent.commit()
            written += 1

threads = [threading.Thread(target=write) for _ in range(3)]
[thread.start() for thread in threads]
forks = 0
while forks < 60 or written < 10:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    forks += 1
    enough.wait(0.01)
enough.set()
[thread.join() for thread in threads]
print("alive after", forks, "forks and", written, "commits")
"""


@pytest.mark.kinds("sqlite")
def test_a_fork_during_a_statement_of_a_handler_does_not_crash_the_process(
    database: Database, processes: Processes
) -> None:
    """R193: the connection is closed when its statement has ended, not under it, which would be a
    segmentation fault. (uvloop tells of a fork when it starts the process of an isolated task.)"""
    script = processes.python(FORKING, env={"OUTLAST_URL": database.url})
    assert "alive after" in script.succeed(60)
