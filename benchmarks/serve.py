"""The inside of a contender's process: `python serve.py CONTENDER.py PLACE`.

It runs in the contender's own environment, where Outlast may not be installed: so it is started by
its path, imports the standard library alone, and loads the contender from a file. That file has one
class, and imports nothing of ours:

    class Contender:
        def __init__(self, place, seen)     where to work (`Place`), and what handlers call (`Seen`)
        prepare()                           make the tables
        enqueue(payload)                    one job, durable when this returns
        enqueue_many(payloads)              many at once, by the best way there is
        enqueue_in_lanes(payloads)          in 1,000 groups, of which two jobs at once may run
        enqueue_in_one_lane(payloads)       in one group, of which 1,000 may
        enqueue_within(payload)             with a row of the caller's, in the caller's transaction
        enqueue_later(payloads)             due tomorrow, at a higher priority
        enqueue_slow(payloads, seconds)     jobs that take so long
        enqueue_group(payloads)             with one more job that comes after all of them
        fill(n)                             so many finished jobs, kept, however they get there
        left()                              how many are not durably finished
        work()                              work until killed

Methods may be coroutines. What a contender cannot do it leaves out. Requests come as lines of JSON
on standard input, each is answered with one on standard output; what libraries print goes to
standard error. When standard input ends, so does the process. serve.mjs is the same for Node.js.
"""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import IO, Any

BULK = 1000  # jobs in one call of enqueue_many
MARK = 100  # handlers between two marks
STAMP = "@"  # begins a payload that says when it was enqueued


PLACE = "OUTLAST_BENCH_PLACE"  # the variable that holds one, as JSON


@dataclass(frozen=True)
class Place:
    """Where a contender works, and how."""

    store: str  # postgres, sqlite or redis
    url: str = field(repr=False)  # it may hold a password
    schema: str  # for those who can have one of their own; the others have the whole database
    folder: str  # for files
    handler: str = "async"  # or sync
    concurrency: int = 100  # jobs at once, and the batch of the bare database


class Seen:
    """What the handlers of this process did: how many ran, when, and how long after enqueueing."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.count = 0
        self.last = 0.0
        self.marks: list[float] = []  # when the first ran, and each hundredth after it
        self.delays: list[float] = []

    def __call__(self, payload: str) -> None:
        now = time.monotonic()
        with self._lock:
            if self.count % MARK == 0:
                self.marks.append(now)
            self.count += 1
            self.last = now
        if payload.startswith(STAMP):
            self.delays.append(now - float(payload[1:18]))

    def batch(self, n: int) -> None:
        """For those who have no handlers, but batches."""
        now = time.monotonic()
        with self._lock:
            marks = -(-(self.count + n) // MARK) + (-self.count // MARK)
            self.marks += [now] * marks
            self.count += n
            self.last = now

    def as_json(self) -> dict[str, Any]:
        with self._lock:
            seen = {"count": self.count, "last": self.last, "marks": self.marks}
        return {**seen, "delays": self.delays}


def stamped(size: int = 0) -> str:
    """A payload of about so many bytes that says when it was made, by a clock that all processes of
    this machine share."""
    return f"{STAMP}{time.monotonic():017.6f}".ljust(size, "x")


class Serving:
    """Answers requests, one after the other."""

    def __init__(self, contender: Any, seen: Seen, answers: IO[str]) -> None:
        self._contender = contender
        self._seen = seen
        self._answers = answers
        self._loop = asyncio.Runner(loop_factory=_loop_factory())

    def serve(self, requests: IO[str]) -> None:
        for line in requests:
            request = json.loads(line)
            if request["do"] == "work":
                self._work(requests)
            self._answer(request)

    def _answer(self, request: dict[str, Any]) -> None:
        verb = getattr(self, f"do_{request.pop('do')}")
        try:
            self._say({"ok": verb(**request)})
        except Exception as error:
            self._say({"error": f"{type(error).__name__}: {error}"})
            raise  # what went wrong stands in the log, and the runner starts no more with this one

    def _say(self, answer: dict[str, Any]) -> None:
        self._answers.write(json.dumps(answer) + "\n")
        self._answers.flush()

    def _work(self, requests: IO[str]) -> None:
        """The handlers have the main thread; requests are answered beside them."""
        threading.Thread(target=self._beside, args=(requests,), daemon=True).start()
        self._say({"ok": None})
        self._call("work")
        raise SystemExit("the worker stopped by itself")

    def _beside(self, requests: IO[str]) -> None:
        for line in requests:
            self._answer(json.loads(line))
        os._exit(0)  # nobody is left to ask, and a worker need not be asked twice

    def _call(self, name: str, *args: Any) -> Any:
        made = getattr(self._contender, name)(*args)
        return self._loop.run(_awaited(made)) if inspect.isawaitable(made) else made

    # What can be asked

    def do_versions(self, packages: list[str]) -> dict[str, str]:
        return {"python": sys.version.split()[0], **dict(_versions(packages))}

    def do_prepare(self) -> None:
        self._call("prepare")

    def do_left(self) -> dict[str, Any]:
        """As of when we asked: what it says was true then, however long the answer took."""
        asked_at = time.monotonic()
        return {"left": self._call("left"), "at": asked_at}

    def do_fill(self, n: int) -> None:
        self._call("fill", n)

    def do_slow(self, n: int, seconds: float) -> None:
        self._call("enqueue_slow", ["x"] * n, seconds)

    def do_group(self, n: int) -> None:
        self._call("enqueue_group", ["x" * 100] * n)

    def do_later(self, n: int) -> None:
        for first in range(0, n, BULK):
            self._call("enqueue_later", ["x"] * min(BULK, n - first))

    def do_enqueue(
        self, n: int, size: int, how: str = "enqueue", at: float | None = None
    ) -> dict[str, float]:
        """So many, from a moment on that others may have been told too: when it began and ended."""
        payload = "x" * size
        if at is not None:
            time.sleep(max(0.0, at - time.monotonic()))
        began_at = time.monotonic()
        if how in ("enqueue_many", "enqueue_in_lanes", "enqueue_in_one_lane"):
            for first in range(0, n, BULK):
                self._call(how, [payload] * min(BULK, n - first))
        else:
            self._each(how, payload, n)
        return {"began": began_at, "ended": time.monotonic()}

    def _each(self, how: str, payload: str, n: int) -> None:
        enqueue: Callable[[str], Any] = getattr(self._contender, how)
        if not inspect.iscoroutinefunction(enqueue):
            for _ in range(n):
                enqueue(payload)
            return

        async def each() -> None:
            for _ in range(n):
                await enqueue(payload)

        self._loop.run(each())

    def do_drip(self, n: int, every: float) -> None:
        """One by one, so far apart that each finds the worker idle."""
        for _ in range(n):
            time.sleep(every)
            self._call("enqueue", stamped())

    def do_pour(self, rate: float, seconds: float, size: int, every: float = 0.02) -> int:
        """Many at once, so many a second in all; how many it were."""
        began_at, sent = time.monotonic(), 0
        while (now := time.monotonic()) < began_at + seconds:
            due = int((now - began_at + every) * rate) - sent
            if due > 0:
                self._call("enqueue_many", [stamped(size)] * due)
                sent += due
            time.sleep(max(0.0, now + every - time.monotonic()))
        return sent

    def do_count(self) -> int:
        """Asked often, while somebody is measured."""
        return self._seen.count

    def do_seen(self) -> dict[str, Any]:
        return self._seen.as_json()


async def _awaited(made: Any) -> Any:
    return await made


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """The fastest there is in this environment."""
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def _versions(packages: list[str]) -> Iterator[tuple[str, str]]:
    for package in packages:
        try:
            yield package, version(package)
        except PackageNotFoundError:
            yield package, "missing"


def load(path: str) -> Any:
    """The class of a contender's file, which is not imported by name: it may have its library's."""
    spec = importlib.util.spec_from_file_location("contender", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["contender"] = module
    spec.loader.exec_module(module)
    return module.Contender


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    seen = Seen()
    # Not an argument: other users can read those, and an address may hold a password.
    place = Place(**json.loads(os.environ.pop(PLACE)))
    contender = load(sys.argv[1])(place, seen)
    Serving(contender, seen, answers).serve(sys.stdin)


if __name__ == "__main__":
    main()
