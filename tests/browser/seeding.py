"""What the pages show: a day in the life of a shop, the same each time; and a table of malice."""

from __future__ import annotations

import math
import random
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from outlast import Outlast
from outlast.model.histogram import BUCKETS
from outlast.ops.statistics import LONG_SPAN_S, SPAN_S
from tests.browser.payloads import PAYLOADS
from tests.browser.rows import Rows, filling
from tests.support import Database

TASKS = {
    "send_receipt": "mail", "render_invoice": "documents", "resize_photo": "media",
    "sync_stock": "default", "charge_card": "payments", "index_product": "search",
}  # fmt: skip
ERRORS = {
    "charge_card": ("CardDeclined", "the bank said: insufficient funds"),
    "sync_stock": ("ConnectTimeout", "warehouse.example did not answer within 10 s"),
    "render_invoice": ("KeyError", "'vat_number'"),
}
TOKENS: list[tuple[str, list[str], dict[str, object]]] = [
    ("checkout", ["enqueue"], {"tenant": "acme"}),
    ("render farm", ["work"], {"queues": ["documents", "media"]}),
    ("wall screen", ["read"], {}),
]
TRACEBACK = """Traceback (most recent call last):
  File "shop/tasks.py", line 41, in {task}
    answer = client.call(order)
  File "shop/client.py", line 88, in call
    raise {kind}(reason)
shop.client.{kind}: {message}
"""


@dataclass
class Stage:
    """Ids by what they stand for."""

    jobs: dict[str, str] = field(default_factory=dict)
    flows: list[str] = field(default_factory=list)


def a_day(database: Database) -> Stage:
    """Jobs in every state, with attempts, events, workers, flows and tokens."""
    stage = Stage()
    with filling(database) as rows:
        _crowd(rows)
        _workers(rows)
        _told(rows, stage)
        _flow(rows, stage)
        _recovered(rows, stage)
        _statistics(rows)
        rows.insert("queue", name="media", paused=1, changed_at=rows.now - 900)
        rows.insert("duty", name="audit", every=60.0, next_at=rows.now + 3600, worker="worker-2",
                    succeeded_at=rows.now - 12)  # fmt: skip
        _bridges(rows)
        for name, scopes, said in TOKENS:
            rows.insert("token", id=rows.id(9000), name=name, hash=name, scopes=scopes,
                        created_at=rows.now - 90_000, **said)  # fmt: skip
    _schedule(database)
    return stage


def _bridges(rows: Rows) -> None:
    """An outbox of the queue that is paused, and a source that fails."""
    said = {"seen_at": rows.now, "received": 4200, "stored": 4100, "undecodable": 3}
    rows.insert("bridge", kind="outbox", name="orders", broker="Redis redis://one, stream orders",
                task="orders", queues=["media"], **said)  # fmt: skip
    rows.insert("bridge", kind="source", name="mail", broker="NATS nats://broker, subject mail",
                task="sync", queues=["mail"], lag=17, error="ConnectionError: refused",
                message_at=rows.now - 40, **said)  # fmt: skip


def _schedule(database: Database) -> None:
    """A schedule for the pages that ask before they act on one."""
    with closing(Outlast(database.url, schema=database.schema)) as ol:

        @ol.task(queue="mail")
        def daily_report() -> None: ...

        ol.create_schedule("nightly", daily_report.job(), cron="0 3 * * *", tz="Europe/Berlin")


def _recovered(rows: Rows, stage: Stage) -> None:
    """A worker died, its jobs came back, and its last words were refused."""
    job = stage.jobs["succeeded"]
    lost = {"workers": [{"id": "worker-9", "host": "host-2", "pid": 777}], "how": "lock",
            "detail": "", "jobs": [job, stage.jobs["running"]], "number": 2}  # fmt: skip
    rows.event(None, "worker-lost", lost, ago=225.4)
    rows.attempt(job, 1, 260, 34.7, outcome="crashed", worker="worker-9",
                 error={"type": "WorkerLost", "message": "its liveness lock was free"})  # fmt: skip
    late = {"job": job, "fence": 1, "worker": "worker-9", "outcome": "succeeded"}
    rows.event(None, "write-refused", late, ago=120)


LOADS = {"mail": 9, "documents": 4, "payments": 2, "search": 6}  # jobs in ten seconds


def _statistics(rows: Rows) -> None:
    """An hour of short spans, a week of long ones: busy by day, quiet by night, one bad hour."""
    chance = random.Random(11)
    last = int(rows.now) // SPAN_S * SPAN_S
    for place in range(1, 361):
        for queue, load in LOADS.items():
            busy = 1 + 0.5 * chance.random() - (place % 40 == 9)
            ready = load * (1.5 + math.sin(place / (8 + load)) + 0.3 * chance.random())
            _counted(rows, SPAN_S, last - place * SPAN_S, queue, load * busy, ready)
    last = int(rows.now - 90) // LONG_SPAN_S * LONG_SPAN_S
    for place in range(1, 7 * 144):
        for queue, load in LOADS.items():
            by_day = 0.55 + 0.45 * math.cos(place * LONG_SPAN_S / 86_400 * 2 * math.pi)
            ready = load * (0.5 + 2 * by_day * chance.random() + 6 * (40 < place < 46))
            busy = by_day * (1.15 + 0.2 * chance.random()) * (LONG_SPAN_S // SPAN_S)
            _counted(rows, LONG_SPAN_S, last - place * LONG_SPAN_S, queue, load * busy, ready)


def _counted(rows: Rows, span: int, at: int, queue: str, done: float, ready: float) -> None:
    number = max(0, round(done))
    rows.insert("statistic", span=span, at=at, tenant="default", queue=queue, succeeded=number,
                failed=number // 8, waits=_classes(number, 2, 4, 5), runs=_classes(number, 5, 7, 9),
                depths={"ready": round(ready), "running": 2})  # fmt: skip


def _classes(number: int, *places: int) -> list[float]:
    """Most in the first of these classes of spans of time, fewer in the next."""
    spans = [0] * BUCKETS
    for half, place in enumerate(places):
        spans[place] = number >> half
    return [*spans, round(sum(spans) * 0.05, 3)]


def _error(task: str) -> dict[str, str]:
    kind, message = ERRORS[task]
    said = TRACEBACK.format(task=task, kind=kind, message=message)
    return {"type": kind, "message": message, "traceback": said}


def _crowd(rows: Rows) -> None:
    chance = random.Random(7)
    for number in range(260):
        task = chance.choice(list(TASKS))
        state = chance.choices(
            ["succeeded", "ready", "scheduled", "cancelled"], [80, 12, 6, 2]
        )[0]  # fmt: skip
        rows.job(state, ago=20 + number * 13.0, task=task, queue=TASKS[task],
                 tenant=chance.choice(["default", "acme", "globex"]),
                 args={"order": 1000 + number}, key=f"order-{1000 + number}-{task}",
                 result="true" if state == "succeeded" else None)  # fmt: skip
    for number in range(34):
        task = chance.choices(list(ERRORS), [5, 2, 1])[0]
        rows.job("dead", ago=400 + number * 90.0, task=task, queue=TASKS[task], attempt=3,
                 failures=3, args={"order": 500 + number}, error=_error(task))  # fmt: skip


def _workers(rows: Rows) -> None:
    for number in (1, 2, 3):
        rows.worker(f"worker-{number}", host=f"host-{(number + 1) // 2}", pid=4000 + number,
                    tasks=list(TASKS), running=2 if number == 1 else 0)  # fmt: skip
    rows.worker("worker-4", host="host-3", pid=999, seen_at=rows.now - 300, running=0, lease=15.0)


def _told(rows: Rows, stage: Stage) -> None:
    job = rows.job("running", ago=340, task="render_invoice", queue="documents", key="invoice-7",
                   attempt=3, fence=3, failures=1, crashes=1, started_at=rows.now - 225,
                   timeout=600.0,
                   args={"order": 7, "lines": [{"sku": f"A-{n}", "number": n} for n in range(9)],
                         "secret:card": "4111111111111111"})  # fmt: skip
    rows.attempt(job, 1, 335, 30, worker="worker-2", error=_error("render_invoice"))
    rows.attempt(job, 2, 289, 63.6, worker="worker-9", outcome="crashed",
                 error={"type": "WorkerLost", "message": "its liveness lock was free"})  # fmt: skip
    for number in range(6):
        rows.event(job, "progress", {"done": 30 * number, "total": 240, "note": "pages"},
                   ago=40 - number * 6, attempt=3, fence=3, n=number)  # fmt: skip
    rows.event(
        job, "log", {"message": "fonts are loaded", "took": 0.4}, 38, attempt=3, fence=3, n=9
    )
    stage.jobs["running"] = job
    stage.jobs["ready"] = rows.job("ready", ago=12, task="resize_photo", queue="media", priority=5)
    dead = rows.job("dead", ago=900, task="charge_card", queue="payments", attempt=3, failures=3,
                    args={"order": 77}, error=_error("charge_card"))  # fmt: skip
    for number in (1, 2, 3):
        rows.attempt(dead, number, 900 - number * 120, 4, worker="worker-1",
                     error=_error("charge_card"))  # fmt: skip
    rows.event(dead, "cancel", {"by": "token ops", "reason": "too late", "state": "dead"}, 30)
    stage.jobs["dead"] = dead
    stage.jobs["succeeded"] = rows.job(
        "succeeded", ago=300, task="index_product", queue="search", args={"product": 9}, attempt=2,
        fence=2,
        result={"indexed": True, "words": [f"word-{n}" for n in range(400)]})  # fmt: skip
    stage.jobs["cancelled"] = rows.job(
        "cancelled", ago=300, task="send_receipt", queue="mail",
        error={"type": "Cancelled", "message": "the order was withdrawn"})  # fmt: skip
    stage.jobs["scheduled"] = rows.job("scheduled", ago=700, task="sync_stock", attempt=1,
                                       failures=1, error=_error("sync_stock"))  # fmt: skip


def _flow(rows: Rows, stage: Stage) -> None:
    flow = rows.id()
    rows.insert("flow", id=flow, name="nightly catalogue", created_at=rows.now - 400)
    states = ["succeeded"] * 4 + ["running", "ready"]
    fetched = [rows.job(state, ago=400, task="fetch_page", queue="search", flow=flow, tied=1)
               for state in states]  # fmt: skip
    merged = rows.job("waiting", ago=400, task="merge_pages", flow=flow, waits_for=2, tied=1)
    ends = [rows.job("waiting", ago=400, task=task, flow=flow, tied=1)
            for task in ("index_product", "send_receipt")]  # fmt: skip
    edges = [*((one, merged) for one in fetched), *((merged, one) for one in ends)]
    for place, (one, other) in enumerate(edges):
        rows.insert("edge", job=one, follower=other, place=place)
    stage.flows.append(flow)
    stage.jobs["waiting"] = merged
    large = rows.id()
    rows.insert("flow", id=large, name="import of 300 files", created_at=rows.now - 4000)
    for number in range(300):
        rows.job("succeeded" if number < 288 else "dead", ago=4000, task="import_file", flow=large,
                 tenant="acme", tied=1,
                 error=_error("sync_stock") if number >= 288 else None)  # fmt: skip
    stage.flows.append(large)


def malice(database: Database, at_once: int) -> Stage:
    """Every payload in every stored field: so many of them in one value."""
    chunks = [" ".join(PAYLOADS[n : n + at_once]) for n in range(0, len(PAYLOADS), at_once)]
    stage = Stage()
    with filling(database) as rows:
        for number in range(len(chunks)):
            _malicious(rows, stage, chunks, number)
        _bridges(rows)  # for the pages that ask before they act on one
    _schedule(database)
    return stage


def _malicious(rows: Rows, stage: Stage, chunks: list[str], number: int) -> None:
    """Each field of it has another one; over all numbers, each has all of them."""

    def evil(offset: int) -> str:
        return chunks[(number + offset) % len(chunks)]

    flow, worker = rows.id(), evil(1)
    error = {"type": evil(2), "message": evil(3), "traceback": evil(4)}
    names: dict[str, Any] = {"task": evil(5), "queue": evil(6), "tenant": evil(7)}
    for kind in ("outbox", "source"):
        rows.insert("bridge", kind=kind, name=f"{number} {evil(1)}", broker=evil(2), task=evil(3),
                    queues=[evil(6)], error=evil(4), seen_at=rows.now)  # fmt: skip
    rows.insert("flow", id=flow, name=evil(8), reason=evil(9), created_at=rows.now,
                cancelled_at=rows.now, settled_at=rows.now)  # fmt: skip
    rows.worker(worker, host=evil(10), queues=[evil(11)], tasks=[evil(12)], version=evil(13))
    rows.insert("queue", name=evil(6), paused=1, changed_at=rows.now)
    rows.insert("schedule", name=f"{evil(27)} {number}", tenant=evil(7), queue=evil(6),
                task=evil(5), spec={"cron": evil(28)}, job={}, note=evil(29),
                error=evil(30), paused_by=evil(31), pause_reason=evil(32),
                created_at=rows.now, changed_at=rows.now)  # fmt: skip
    rows.insert("token", id=rows.id(), name=evil(14), hash=f"{number}", scopes=[evil(15)],
                tenant=evil(16), queues=[evil(17)], created_at=rows.now)  # fmt: skip
    dead = rows.job("dead", **names, key=f"{evil(18)} {number}", args={evil(19): evil(20)},
                    error=error, worker=worker, flow=flow, trace=evil(21))  # fmt: skip
    running = rows.job("running", **names, key=f"{evil(22)} {number}", args=evil(19),
                       error=error, worker=worker, flow=flow)  # fmt: skip
    rows.job("scheduled", **names, error=error, attempt=1)
    rows.job("succeeded", **names, result={evil(23): evil(24)}, flow=flow)
    waiting = rows.job("waiting", **names, flow=flow)
    rows.job("cancelled", **names, error={"type": "Cancelled", "message": evil(25)}, flow=flow)
    rows.insert("edge", job=running, follower=waiting, place=0)
    for job in (dead, running):
        rows.attempt(job, 1, 50, 5, worker=worker, outcome=evil(26), error=error)
        rows.attempt(job, 2, 40, 5, worker=worker, outcome="crashed", error=error)
        rows.event(job, "progress", {"done": evil(1), "total": evil(2), "note": evil(3)}, attempt=1)
        rows.event(job, "log", {"message": evil(4), evil(5): evil(6), "deep": [evil(7)]}, attempt=1)
        rows.event(job, "cancel", {"by": evil(8), "reason": evil(9)})
        rows.event(job, evil(10), evil(11))
        rows.insert("step", job=job, name=evil(12), result="1", fence=1, attempt=1, at=rows.now)
    lost = {"workers": [{"id": worker, "host": evil(13), "pid": evil(16)}], "how": evil(14),
            "detail": evil(15), "jobs": [dead, evil(16)], "number": 2}  # fmt: skip
    rows.event(None, "worker-lost", lost)
    rows.event(None, "write-refused", {"job": evil(19), "worker": worker, "outcome": evil(20)})
    for span in (SPAN_S, LONG_SPAN_S):
        rows.insert("statistic", span=span, at=int(rows.now) // span * span - span, tenant=evil(7),
                    queue=evil(6), succeeded=1, waits=[], runs=[],
                    depths={"ready": 3})  # fmt: skip
    rows.event(None, "pause", {"by": evil(17), "queue": evil(18)})
    stage.jobs[f"dead {number}"], stage.jobs[f"running {number}"] = dead, running
    stage.jobs[f"waiting {number}"] = waiting
    stage.flows.append(flow)
