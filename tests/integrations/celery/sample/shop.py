"""A small Celery app, as its users write them. The test moves it by changing its one import."""

import os
import time
from datetime import timedelta
from pathlib import Path

from celery import Celery, Task, chain, chord, group, schedules, shared_task

app = Celery(
    "shop",
    broker=os.environ["SHOP_BROKER"],
    backend=os.environ.get("SHOP_BACKEND", "cache+memory://"),
)
app.conf.update(
    task_routes={"shop.mail_*": {"queue": "mail"}},
    timezone="Europe/Berlin",
    result_expires=3600,
    worker_prefetch_multiplier=1,
    task_track_started=True,
    broker_connection_retry_on_startup=True,
)
app.conf.beat_schedule = {
    "nightly": {
        "task": "shop.add",
        "schedule": schedules.crontab(minute=30, hour=2),
        "args": (1, 2),
    },
    "often": {"task": "shop.ping", "schedule": 30.0, "options": {"queue": "mail"}},
    "hourly": {"task": "shop.ping", "schedule": timedelta(hours=1)},
}


class Recorded(Task):
    """Writes down how its tasks end."""

    def on_success(self, retval, task_id, args, kwargs):
        note(f"success {task_id}")

    def on_failure(self, exc, task_id, args, kwargs, einfo):
        note(f"failure {task_id} {exc!r}")

    def on_retry(self, exc, task_id, args, kwargs, einfo):
        note(f"retry {task_id} {exc!r}")


def note(text):
    with Path(os.environ["SHOP_NOTES"]).open("a") as file:
        file.write(f"{text}\n")


@app.task
def add(x, y=10):
    return x + y


@shared_task(name="shop.ping", ignore_result=True)
def ping():
    return "pong"


@app.task(bind=True, base=Recorded, max_retries=3, default_retry_delay=0)
def flaky(self, failures):
    note(f"flaky {self.request.id} {self.request.retries}")
    if self.request.retries < failures:
        raise self.retry(exc=OSError(f"try {self.request.retries}"), countdown=0)
    return self.request.retries


@app.task(bind=True, autoretry_for=(ConnectionError,), max_retries=2, retry_backoff=True,
          retry_backoff_max=1, retry_jitter=False)  # fmt: skip
def fetch(self, url):
    note(f"fetch {self.request.id} {self.request.retries}")
    raise ConnectionError(f"{url} is away")


@app.task(base=Recorded)
def fail(text):
    raise ValueError(text)


@app.task(ignore_result=True)
def mark(number):
    note(f"{os.environ.get('SHOP_SIDE')} {number}")


@app.task
def total(numbers):
    return sum(numbers)


@app.task
def later(moment):
    return moment + timedelta(days=1)


@app.task
def mail_receipt(order, *items, to="nobody"):
    note(f"mail {order} {list(items)} {to}")
    return to


@app.task(bind=True)
def long_job(self, path):
    self.update_state(state="PROGRESS", meta={"current": 1, "total": 4})
    while not Path(path).exists():
        time.sleep(0.02)
    return "done"


@app.task
def on_error(request, exc, traceback):
    note(f"errback {request.id} {exc!r}")


def thrice(start):
    return chain(add.s(start, 1), add.s(2), add.si(100, 1))


def fan(numbers):
    return chord([add.s(n, 1) for n in numbers])(total.s())


def both():
    return group(add.s(1, 1), add.s(2, 2))
