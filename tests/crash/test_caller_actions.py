"""A process that cancels or redrives in its own transaction may die at any moment: what it did
happened together with its own rows, or not at all."""

from __future__ import annotations

import pytest

from tests.crash.test_enqueue import started
from tests.support import Database, Processes, eventually
from tests.support.app import PATIENCE, App

SCRIPT = """
url, schema, verb, moment, id = sys.argv[1:]
if url.startswith("sqlite"):
    import sqlite3
    connection = sqlite3.connect(url.removeprefix("sqlite:///"))
    name = "orders"
else:
    import psycopg
    connection = psycopg.connect(url)
    name = schema + ".orders"
connection.execute(f"INSERT INTO {name} VALUES (1)")
getattr(app.ol, verb)(id, conn=connection)
if moment == "before":
    os.kill(os.getpid(), signal.SIGKILL)
connection.commit()
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("verb", ["cancel", "cancel_flow", "retry"])
def test_a_process_killed_around_its_commit_leaves_all_or_nothing(
    app: App, processes: Processes, database: Database, verb: str, moment: str
) -> None:
    """R002, R114: a worker that runs meanwhile sees one or the other."""
    from outlast import group

    with database.connect() as connection:
        connection.execute("CREATE TABLE orders (n integer)")
    jobs = app.ol.enqueue(group(*(app.mark.using(delay=3600).job(n) for n in range(3))))
    if verb == "retry":
        app.ol.cancel(jobs[0].id)
    id = jobs[0].flow if verb == "cancel_flow" else jobs[0].id
    process = started(processes, app, SCRIPT, database.url, database.schema, verb, moment, id)
    assert process.wait(PATIENCE) == -9
    happened = moment == "after"
    # PostgreSQL may take a moment to notice that its client is gone.
    eventually(lambda: database.rows("SELECT count(*) FROM orders") == [(int(happened),)])
    found = [app.ol.job(job.id).state for job in jobs]
    if verb == "retry":
        assert found == ["ready" if happened else "cancelled", "scheduled", "scheduled"]
    elif verb == "cancel":
        assert found == ["cancelled" if happened else "scheduled", "scheduled", "scheduled"]
    else:
        assert found == ["cancelled" if happened else "scheduled"] * 3
