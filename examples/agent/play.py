"""One run of the agent: its workers and their deaths, a reader of its stream, a manager who
approves, and the report at the end."""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import shop
from transcript import Transcript

if TYPE_CHECKING:
    from outlast import Job, Outlast

HERE = Path(__file__).parent
WORKER = ("-m", "outlast", "worker", "agent:ol", "--concurrency", "4", "--log-level", "error")
MANAGER_S = 1.0  # how long the manager thinks
ONCE = {"mail to the manager": 1, "refund": 1, "mail to the customer": 1}


def start(*words: str) -> subprocess.Popen[bytes]:
    """A Python process in this folder."""
    return subprocess.Popen([sys.executable, *words], cwd=HERE, stdin=subprocess.DEVNULL)


class Play:
    def __init__(self, ol: Outlast, job: Job, options: argparse.Namespace) -> None:
        self.ol, self.job, self.options = ol, job, options
        self.workers: list[subprocess.Popen[bytes]] = []
        self.transcript = Transcript()
        self.kills = 0
        self.second_click: int | None = None  # the status of a link's second use
        self._ended = threading.Event()

    def run(self) -> None:
        """Until the agent has ended; meanwhile, kill its workers."""
        self.workers = [start(*WORKER) for _ in range(2)]
        threads = [threading.Thread(target=self._read), threading.Thread(target=self._manage)]
        for thread in threads:
            thread.daemon = True
            thread.start()
        try:
            while self.options.kill_every and self.kills < self.options.kills:
                if not self._kill_owner():
                    break
            self._ended.wait()
            for thread in threads:
                thread.join(60)
        finally:
            for worker in self.workers:
                worker.kill()

    def _kill_owner(self) -> bool:
        """Let a worker run the agent for a while, then SIGKILL the one that has it by then, and
        start another one. False if the agent has ended."""
        while self._owner() is None:  # it waits for a worker, its budget, or the manager
            if self._ended.wait(0.05):
                return False
        if self._ended.wait(random.uniform(0.5, 1.5) * self.options.kill_every):
            return False
        if (owner := self._owner()) is not None:
            owner.kill()
            owner.wait()
            self.workers = [start(*WORKER) if one is owner else one for one in self.workers]
            self.kills += 1
        return True

    def _owner(self) -> subprocess.Popen[bytes] | None:
        """The worker that runs the agent."""
        id = self.ol.job(self.job.id).worker
        pids = {worker.pid for worker in self.ol.workers() if worker.id == id}
        return next((one for one in self.workers if one.pid in pids), None)

    def _read(self) -> None:
        """Read the stream to its end, as the page does."""
        for chunk in self.ol.stream(self.job.id):
            self.transcript.add(chunk)
            if self.options.json:
                continue
            if chunk.kind == "attempt":
                print(f"\n-- the agent starts, claim {chunk.fence}", flush=True)
            elif chunk.kind == "json" and "token" in chunk.data:
                print(chunk.data["token"], end="", flush=True)
        self._ended.set()

    def _manage(self) -> None:
        """The manager: get the mail, think, press "Approve", and press it once more."""
        mails: list[str] = []
        while not mails and not self._ended.wait(0.1):
            mails = [one.detail for one in shop.effects() if one.kind == "mail to the manager"]
        if mails and self.options.by_hand:
            print(f"\n-- mail to you: {mails[0]}", flush=True)
        elif mails:
            self._ended.wait(MANAGER_S)
            link = mails[0].split()[-1]
            press(link)
            self.second_click = press(link)

    def report(self) -> dict[str, Any]:
        """What happened; `broken` is what should not have."""
        job, shown = self.ol.job(self.job.id), self.transcript
        attempts, events = self.ol.history(job.id)
        effects = shop.effects()
        seen: dict[str, Any] = {
            "state": str(job.state),
            "workers killed": self.kills,
            "attempts that crashed": sum(one.outcome == "crashed" for one in attempts),
            "claims": job.fence,
            "turns cut off and streamed again": shown.cut_off,
            "effects": dict(Counter(one.kind for one in effects)),
            "calls of effects": sum(one.calls for one in effects),
            "approvals": sum(event.kind == "signal" for event in events),
            "status of the second click": self.second_click,
            "least seconds between model calls": self._least_pause(),
            "turns": (job.result or {}).get("turns", []),
            "turns as shown": [shown.turns[turn] for turn in sorted(shown.turns)],
        }
        wanted = {"state": "succeeded", "turns as shown": seen["turns"]}  # no gap, no repeat
        if not self.options.by_hand:
            wanted |= {"effects": ONCE, "approvals": 1, "status of the second click": 410}
        broken = [
            f"{name}: {seen[name]}, and must be {value}"
            for name, value in wanted.items()
            if seen[name] != value
        ]
        return seen | {"broken": broken}

    def _least_pause(self) -> float:
        """Between the starts of two permits: what the budget allows."""
        permits = self.ol.jobs(task="permit", state="succeeded", limit=100)
        starts = sorted(one.started_at.timestamp() for one in permits if one.started_at)
        return round(min((b - a for a, b in pairwise(starts)), default=0.0), 2)


def press(link: str) -> int:
    """Press the first button of a link's page; the status of the response."""
    try:
        with urllib.request.urlopen(link, data=b"choice=0", timeout=30) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
