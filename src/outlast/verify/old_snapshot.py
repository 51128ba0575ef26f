"""An old snapshot, like that of a long report: PostgreSQL keeps all dead rows meanwhile."""

from __future__ import annotations

import faulthandler
import os
import signal
import time
from contextlib import closing

CHECK_INTERVAL_S = 1.0  # seconds between statements, which fail when the session is gone


def hold_snapshot(url: str, number: int) -> None:
    """In a child: hold one transaction's snapshot until the process is stopped."""
    import psycopg

    faulthandler.cancel_dump_traceback_later()
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    with closing(psycopg.connect(url)) as connection:
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        while True:
            connection.execute("SELECT count(*) FROM pg_class")
            time.sleep(CHECK_INTERVAL_S)
