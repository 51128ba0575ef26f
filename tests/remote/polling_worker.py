"""A remote worker in Python's standard library alone, by long polls instead of a stream:
python polling_worker.py URL TOKEN_FILE [HOW_MANY_AT_ONCE]

The protocol is described in docs/reference/remote-protocol.md.
"""

import json
import os
import random
import signal
import sys
import threading
import time
import traceback
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import ProxyHandler, Request, build_opener

server, token_file, credit = [*sys.argv[1:], "4"][:3]
secret = Path(token_file).read_text().strip()
worker = f"poll-{os.getpid()}-{time.time_ns()}"
opener = build_opener(ProxyHandler({}))
leaving = threading.Event()
held = {}  # jobs in flight, by task token
lease = 15.0  # seconds; set by the server


class Permanent(Exception):
    """The job should not be tried again."""


class Stopped(Exception):
    """The job should stop: it was cancelled, is lost, or the worker leaves."""


class Held:
    def __init__(self, job):
        self.job, self.stop, self.reason, self.until, self.said = job, threading.Event(), "", 0, []

    def stop_for(self, reason):
        self.reason = self.reason or reason
        self.stop.set()

    def progress(self, done, total):
        event = {"do": "event", "token": self.job["token"], "n": len(self.said), "kind": "progress"}
        self.said.append({**event, "data": json.dumps({"done": done, "total": total})})


def nap(one, seconds):
    if one.stop.wait(seconds):
        raise Stopped
    return one.job["attempt"]


def count(one, to):
    for n in range(1, to + 1):
        one.progress(n, to)


def fail(one, message):
    raise ValueError(message)


def refuse(one, message):
    raise Permanent(message)


tasks = {"add": lambda one, a, b: a + b, "nap": nap, "count": count, "fail": fail, "refuse": refuse}


def call(method, path, body=None, timeout=60):
    """A request, retried until the server responds; a refusal ends the program."""
    headers = {"authorization": f"Bearer {secret}", "content-type": "application/json"}
    data, wait = None if body is None else json.dumps(body).encode(), 0.1
    while True:
        try:
            request = Request(server + path, data, headers, method=method)
            with opener.open(request, timeout=timeout) as answer:
                return json.loads(answer.read())
        except HTTPError as error:
            if error.code < 500 and error.code != 429:
                print(f"refused: {error.code} {error.read().decode()}", flush=True)
                os._exit(1)
        except (OSError, ValueError):
            pass
        time.sleep(wait * random.uniform(0.5, 1))
        wait = min(2 * wait, 5)


def report(reports):
    return call("POST", "/api/v1/tasks/reports", {"reports": reports})["reports"] if reports else []


def renew(tokens):
    """Renew jobs; the first renewal accepts them. Lost or cancelled jobs stop."""
    asked = time.monotonic()
    answers = report([{"do": "renew", "token": token} for token in tokens])
    for token, answer in zip(tokens, answers, strict=True):
        if (one := held.get(token)) is None:
            continue
        if answer["status"] == "lost":
            held.pop(token, None)
            one.stop_for("lost")
        elif answer.get("locked") and one.until:  # nobody can reclaim it: renew again soon
            one.until = max(one.until, asked + 0.45 * lease)
        elif answer["status"] == "ok":
            if not one.until:
                threading.Thread(target=run, args=[one]).start()
            one.until = asked + 0.9 * lease
            if answer["cancel"]:
                one.stop_for("cancelled")


def run(one):
    token = one.job["token"]
    try:
        result = tasks[one.job["task"]](one, **json.loads(one.job["args"]))
        outcome = {"do": "complete", "result": json.dumps(result)}
    except Exception as error:
        how = "permanent" if isinstance(error, Permanent) else one.reason or "failed"
        told = {"type": type(error).__name__, "message": str(error)}
        told["traceback"] = traceback.format_exc()
        outcome = {"do": "fail", "how": how, "error": told}
        if how == "leaving":
            outcome = {"do": "release"}
    if token in held:  # else the claim is lost
        report([*one.said, {"token": token, **outcome}])
    held.pop(token, None)


def keep():
    """Three renewals per lease; jobs not renewed in time stop here."""
    while True:
        time.sleep(lease / 10)
        for token, one in tuple(held.items()):
            if one.until and time.monotonic() > one.until:
                held.pop(token, None)
                one.stop_for("lost")
        soon = time.monotonic() + 0.6 * lease
        renew([token for token, one in tuple(held.items()) if one.until < soon])


def poll():
    global lease  # noqa: PLW0603
    wish = urlencode({"worker": worker, "tasks": ",".join(tasks), "credit": credit, "wait": 20})
    while not leaving.is_set():
        answer = call("POST", f"/api/v1/dequeue?{wish}")
        lease = answer["lease"]
        held.update((job["token"], Held(job)) for job in answer["jobs"])
        renew(tuple(held) if answer["renew"] else [job["token"] for job in answer["jobs"]])


signal.signal(signal.SIGTERM, lambda *_: leaving.set())
for loop in (poll, keep):
    threading.Thread(target=loop, daemon=True).start()
while not leaving.wait(0.1):
    pass
for one in tuple(held.values()):
    one.stop_for("leaving")
while held:
    time.sleep(0.02)
call("DELETE", f"/api/v1/dequeue?worker={worker}")
os._exit(0)
