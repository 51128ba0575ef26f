"""Everything that is counted says what there is, however often whoever counts is killed."""

from __future__ import annotations

import random
import time
from collections import defaultdict
from contextlib import suppress
from typing import Any

import pytest

from outlast import Flow, FlowClosed, Outlast, chain, group
from outlast.ops import statistics
from tests.store.jobs import table
from tests.support import Database, Processes, eventually
from tests.support.app import PATIENCE, App

ENDED = ("succeeded", "dead", "cancelled")


def load(app: App, rounds: int) -> list[str]:
    """Flows of every kind, one cancelled and one failing in each round; returns the flows."""
    ol, flows = app.ol, []
    on_the_spot = {"max_crashes": 1000}
    mark, nap = app.mark.using(**on_the_spot), app.nap.using(**on_the_spot)
    broken = app.mark.using(expires=0.001, delay=0.01)
    for n in range(rounds):
        graph = Flow("graph")
        parts = [graph.add(mark.job(k)) for k in range(6)]
        graph.milestone(0.5, mark.job(7))
        graph.add(mark.job(8), after=parts)
        plans = [
            group(*[mark.job(k) for k in range(8)]).then(mark.job(n)),
            chain(app.followed.using(**on_the_spot).job(n), nap.job(0.05), mark.job(n)),
            group(broken.job(1), nap.job(0.05), broken.job(2), fail_fast=3).then(mark.job(n)),
            group(broken.job(1), nap.job(0.05), broken.job(2), fail_fast=True).then(mark.job(n)),
            group(mark.job(n), nap.job(0.3)).then(mark.job(n)),
            graph,
        ]
        made = [ol.enqueue(plan)[0].flow for plan in plans]
        ol.cancel_flow(str(made[n % 2]), "on purpose")
        flows += [str(flow) for flow in made]
    return flows


@pytest.mark.fresh
@pytest.mark.kinds("sqlite")
def test_counters_are_what_there_is(app: App, processes: Processes, database: Database) -> None:
    """R122: a worker is killed while flows succeed, fail fast, expire, are cancelled and retried.
    Each count is the number of rows: by state, by queue, by flow, what jobs wait for, failures of
    groups, statistics. None was ever negative."""
    soak(app, processes, database, kills=1)


@pytest.mark.fresh
@pytest.mark.campaign
@pytest.mark.timeout(0)
@pytest.mark.kinds("sqlite", "postgres")
def test_counters_after_many_kills(app: App, processes: Processes, database: Database) -> None:
    """R122: the same, killed 40 times at random moments."""
    soak(app, processes, database, kills=40)


def soak(app: App, processes: Processes, database: Database, kills: int) -> None:
    luck, wrong = random.Random(122), list[Any]()

    def look() -> bool:
        wrong.extend([*_negative(database), *_miscounted(database)])
        return True

    started = int(time.time())
    workers = [app.start_worker(processes) for _ in range(2)]
    flows = load(app, 2)
    for n in range(kills):
        eventually(lambda n=n: look() and len(app.ledger.read("run")) >= 5 * (n + 1), PATIENCE)
        time.sleep(luck.uniform(0.0, 0.2))  # where it is by then is left to chance
        workers.pop(luck.randrange(2)).kill()
        workers.append(app.start_worker(processes))
        flows += load(app, 1)
        with suppress(FlowClosed):  # it is still being cancelled
            app.ol.retry_flow(luck.choice(flows))
    eventually(lambda: look() and _live(app.ol) == 0, PATIENCE * 2)
    assert wrong == []
    assert _too_early(database) == []
    _by_state(app.ol, database)
    _by_flow(app.ol, database, flows)
    _failures(database)
    _statistics(app.ol, database, started)


def _live(ol: Outlast) -> int:
    return sum(number for state, number in ol.counts().items() if state not in ENDED)


def _negative(database: Database) -> list[Any]:
    jobs, flows = table(database, "job"), table(database, "flow")
    wrong = "waits_for < 0 OR attempt < 0 OR failures < 0 OR crashes < 0"
    return [
        *database.rows(f"SELECT id FROM {jobs} WHERE {wrong}"),
        *database.rows(f"SELECT id FROM {flows} WHERE failed < 0"),
    ]


def _by_state(ol: Outlast, database: Database) -> None:
    jobs = table(database, "job")
    rows = dict(database.rows(f"SELECT state, count(*) FROM {jobs} GROUP BY state"))
    assert {state: number for state, number in ol.counts().items() if number} == rows
    for queue in ol.queues():
        counted = {state: number for state, number in queue.counts.items() if number}
        query = f"SELECT state, count(*) FROM {jobs} WHERE queue = '{queue.name}' GROUP BY state"
        found = dict(database.rows(query))
        assert counted == {state: found[state] for state in counted}


def _by_flow(ol: Outlast, database: Database, flows: list[str]) -> None:
    query = f"SELECT flow, state, count(*) FROM {table(database, 'job')} GROUP BY flow, state"
    rows: dict[str, dict[str, int]] = defaultdict(dict)
    for flow, state, number in database.rows(query):
        rows[str(flow)][state] = number
    for flow in flows:
        counts = {state: number for state, number in ol.flow(flow).counts.items() if number}
        assert counts == rows[flow]


def _miscounted(database: Database) -> list[Any]:
    """Jobs that wait for another number of jobs than are still to end, in one snapshot."""
    job, edge = table(database, "job"), table(database, "edge")
    live = "('waiting', 'scheduled', 'ready', 'running')"
    query = (
        "SELECT * FROM (SELECT f.id, f.state,"
        " CASE WHEN f.state = 'waiting' THEN f.waits_for ELSE 0 END AS counted,"
        f" (SELECT count(*) FROM {edge} AS e JOIN {job} AS p ON p.id = e.job"
        f" WHERE e.follower = f.id AND p.state IN {live}) AS found FROM {job} AS f"
        f" WHERE f.state IN {live} AND f.needs = 'succeeded' AND f.quorum IS NULL) AS w"
        " WHERE counted <> found"
    )
    return database.rows(query)


def _too_early(database: Database) -> list[Any]:
    """Jobs that began while one that they needed had not ended: what was left was miscounted."""
    job, edge = table(database, "job"), table(database, "edge")
    return database.rows(
        f"SELECT f.id FROM {job} AS f JOIN {edge} AS e ON e.follower = f.id"
        f" JOIN {job} AS p ON p.id = e.job WHERE f.needs = 'succeeded' AND f.quorum IS NULL"
        " AND f.state = 'succeeded' AND f.started_at < p.finished_at"
    )


def _failures(database: Database) -> None:
    """A group that was never cancelled has counted each of its failures, once."""
    job, flow = table(database, "job"), table(database, "flow")
    query = (
        f"SELECT w.failed, w.fail_after, w.cancelled_at IS NOT NULL, count(j.id) FROM {flow} AS w"
        f" LEFT JOIN {job} AS j ON j.team = w.id AND j.state IN ('dead', 'cancelled')"
        " WHERE w.fail_after IS NOT NULL GROUP BY w.id, w.failed, w.fail_after, w.cancelled_at"
    )
    for failed, most, cancelled, rows in database.rows(query):
        assert failed <= rows
        assert failed >= most if cancelled else failed == rows < most


def _statistics(ol: Outlast, database: Database, started: int) -> None:
    span = statistics.SPAN_S
    first, last = started // span * span, int(time.time()) // span * span
    for at in range(first - span, last + span, span):
        ol.store.run(statistics.count, at)
    lines = ol.store.run(statistics.read_statistics, span, first - span, last + 2 * span)
    rows = database.rows(f"SELECT state, count(*) FROM {table(database, 'job')} GROUP BY state")
    assert sum(line.succeeded for line in lines) == dict(rows)["succeeded"]
    for state in ("dead", "cancelled"):  # one that was retried has ended there, too
        assert sum(getattr(line, state) for line in lines) >= dict(rows).get(state, 0)
