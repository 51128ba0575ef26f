"""Jobs that are streamed to agents, over lines that drop: each has an owner that is alive.

    python dispatch.py                             on a SQLite file of its own
    python dispatch.py --url postgresql://…
    python dispatch.py --kill during-send          one accident alone

`outlast serve` offers jobs to agents (`outlast worker --server`), which have no database. Each
agent reaches it over a line that is cut while five offers are on their way. An agent accepts a job
before it runs it, so an offer that is lost costs nothing: it goes back, unspent.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack

import stage as stages
from inside import URL, folder, note, notes
from processes import Process, free_port
from service import metric, serve, token

from outlast import Context, Job, Outlast
from outlast.verify.faults.proxy import Proxy

DROPS = ("before-send", "during-send", "after-send", "half-open")
KILLS = (*DROPS, "server-offering", "server-running", "random", "agent")
AGENTS, BATCH, ROUNDS, OFFER_LEASE_S, RUN_S = 2, 5, 3, 5.0, 0.3
HELD_S = 60.0  # no batch may be held up for longer, beyond the lease of an agent that is killed

ol = Outlast()


@ol.task(max_crashes=20)
def deliver(n: int, ctx: Context) -> int:
    """What an agent does. It stops when it is told that the job is no longer its own."""
    note("starts", ctx.job.id, ctx.fence, os.getpid(), time.monotonic())
    stopped = ctx.cancelled.wait(RUN_S)
    note("ends", ctx.job.id, ctx.fence, os.getpid(), time.monotonic())
    if stopped:
        raise InterruptedError("the job is no longer mine")
    return n


class Line(Proxy):
    """The line of an agent, and the moment when its server offers jobs over it.

    `drop` is called once with the frame, and returns the part of it that arrives; after a part the
    connection is reset."""

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", port))
        self.inspect = self._look
        self.drop: Callable[[Line, bytes], bytes] | None = None
        self.refuse_acceptance = False

    def _look(self, _connection: int, data: bytes, from_server: bool) -> bytes:
        if from_server and b'"offers"' in data and (drop := self.drop):
            self.drop = None
            return drop(self, data)
        if self.refuse_acceptance and not from_server and b'"renew"' in data:
            self.refuse_acceptance = False
            self.cut()
            return b""
        return data


# What happens to a frame of offers: the part that arrives


def before_send(line: Line, frame: bytes) -> bytes:
    return b""


def during_send(line: Line, frame: bytes) -> bytes:
    return frame[: len(frame) // 2]


def after_send(line: Line, frame: bytes) -> bytes:
    line.refuse_acceptance = True  # and every connection is reset instead
    return frame


def half_open(line: Line, frame: bytes) -> bytes:
    line.freeze()  # no error on either side: both believe in the other
    return frame


class Play:
    def __init__(self, stage: stages.Stage, lines: list[Line], port: int) -> None:
        self.stage, self.lines, self.port = stage, lines, port
        secret = folder() / "token"
        secret.touch(0o600)
        secret.write_text(token("work"))
        leases = ("--offer-lease", OFFER_LEASE_S, "--remote-lease", stage.options.lease)
        self.server = serve(stage, port, *leases)
        self.agents = [self.agent(f"agent-{n}", line, secret) for n, line in enumerate(lines, 1)]
        self.jobs: list[Job] = []
        self.back: dict[str, float] = {}  # seconds
        self.offers = 0  # in frames that met an accident
        self.killed: dict[int, float] = {}  # an agent's process id → when
        stage.wait(self.all_connected, "the agents are connected")

    def agent(self, name: str, line: Line, secret: object) -> Process:
        where = ("--server", f"http://127.0.0.1:{line.port}", "--token-file", secret)
        # A frame has offers for half of what an agent can hold.
        room = ("--spool", folder() / f"spool-{name}", "--concurrency", 2 * BATCH)
        return self.stage.worker(name, *where, *room, **{URL: "sqlite:////nowhere/none.db"})

    def all_connected(self) -> bool:
        return metric(self.port, "outlast_dequeue_streams") == len(self.agents)

    def enqueue(self, number: int = AGENTS * BATCH) -> list[Job]:
        """In one transaction: a batch of five for each agent."""
        jobs = ol.enqueue(*(deliver.job(len(self.jobs) + n) for n in range(number)))
        self.jobs += jobs
        return jobs

    # Accidents

    def drop(self, name: str, drop: Callable[[Line, bytes], bytes]) -> None:
        """The next frame of offers meets the accident. The batch must be run all the same."""
        self.stage.wait(self.all_connected, "the agents are connected")
        happened: list[float] = []

        def once(line: Line, frame: bytes) -> bytes:
            for other in self.lines:
                other.drop = None
            self.offers += frame.count(b'"token"')
            happened.append(time.monotonic())
            self.stage.kills[name] += 1
            return drop(line, frame)

        for line in self.lines:
            line.drop = once
        batch = self.enqueue()
        self.stage.wait(lambda: happened, f"{name}: a frame of offers is on its way")
        self.run_again(name, batch, happened[0])

    def kill_server(self, _line: Line, frame: bytes) -> bytes:
        self.server.kill()
        self.server.restart()
        return frame

    def kill_server_while_running(self) -> None:
        """Handlers run on, and report to the server that comes next."""
        batch = self.enqueue()
        self.stage.wait(lambda: self.running(batch), "agents run the batch")
        self.stage.kill(self.server, "server-running")
        self.server.restart()
        self.run_again("server-running", batch, time.monotonic())

    def kill_at_random(self) -> None:
        """The server is killed and lines are cut while jobs come and go."""
        batch = self.enqueue(20 * BATCH)

        def done() -> bool:
            if self.stage.random.random() < 0.05:
                self.stage.random.choice(self.lines).cut()
                self.stage.kills["random cut"] += 1
            return self.all_ended(batch)

        self.stage.kill_until(done, self.server, every=1.5, kills=3)

    def kill_agent(self) -> None:
        """Its jobs come back when its lease ends: they had begun, so this crash is charged."""
        batch = self.enqueue()
        self.stage.wait(lambda: self.running(batch), "an agent runs jobs")
        pid = int(self.running(batch)[0][2])
        victim = next(agent for agent in self.agents if agent.pid == pid)
        victim.signal(signal.SIGSTOP)  # so that the time is known until which it ran
        self.killed[pid] = time.monotonic()
        self.stage.kill(victim, "agent")
        victim.restart()
        self.run_again("agent", batch, self.killed[pid])

    def running(self, batch: list[Job]) -> list[list[str]]:
        """Runs of a batch that have begun and not ended."""
        ended = {tuple(words[:2]) for words in notes("ends")}
        ids = {job.id for job in batch}
        begun = [words for words in notes("starts") if words[0] in ids]
        return [words for words in begun if tuple(words[:2]) not in ended]

    def all_ended(self, batch: list[Job]) -> bool:
        return len(ol.jobs(state="succeeded", limit=10_000)) == len(self.jobs)

    def run_again(self, name: str, batch: list[Job], since: float) -> None:
        """Wait for the batch, and measure how long its last job was held up."""
        self.stage.wait(lambda: self.all_ended(batch), f"{name}: the batch is run")
        for line in self.lines:
            line.thaw()
        ids = {job.id for job in batch}
        last = max(float(at) for id, _, _, at in notes("starts") if id in ids)
        self.back[name] = max(self.back.get(name, 0.0), last - since)

    # The whole

    def run(self) -> None:
        stage = self.stage
        drops = dict(zip(DROPS, (before_send, during_send, after_send, half_open), strict=True))
        for name, drop in drops.items():
            for _ in range(1 if name == "half-open" else ROUNDS):
                if stage.chosen(name):
                    self.drop(name, drop)
        if stage.chosen("server-offering"):
            self.drop("server-offering", self.kill_server)
        if stage.chosen("server-running"):
            self.kill_server_while_running()
        if stage.chosen("random"):
            self.kill_at_random()
        spent = [job for job in ol.jobs(limit=10_000) if job.attempt != 1 or job.failures]
        runs = len(notes("starts"))
        stage.show("jobs", len(self.jobs))
        stage.equal("runs", runs, len(self.jobs))
        stage.show("offers that met an accident", self.offers)
        stage.equal("attempts spent", len(spent), 0)
        if stage.chosen("agent"):
            self.kill_agent()
        self.count()

    def count(self) -> None:
        stage, jobs = self.stage, ol.jobs(limit=10_000)
        for name, seconds in self.back.items():
            limit = HELD_S + (stage.options.lease if name == "agent" else 0.0)
            stage.at_most(f"seconds back, {name}", round(seconds, 1), limit)
        if self.killed:
            crashed = sum(job.crashes for job in jobs)
            stage.at_most("crashes charged by an agent's death", crashed, 2 * BATCH)
        stage.equal("lost", len(self.jobs) - sum(job.state == "succeeded" for job in jobs), 0)
        stage.equal("runs of a job that another agent had", self.overlaps(), 0)
        stage.equal("running without a live owner", len(ol.jobs(state="running")), 0)

    def overlaps(self) -> int:
        """Runs that began before the job's run elsewhere had ended."""
        ends = {(id, fence): float(at) for id, fence, _, at in notes("ends")}
        until: dict[str, float] = {}
        found = 0
        for id, fence, pid, at in sorted(notes("starts"), key=lambda words: float(words[3])):
            found += float(at) < until.get(id, 0.0)
            until[id] = ends.get((id, fence), self.killed.get(int(pid), float("inf")))
        return found


def play(stage: stages.Stage) -> None:
    ol.migrate()
    port = free_port()
    with ExitStack() as stack:
        lines = [stack.enter_context(Line(port)) for _ in range(AGENTS)]
        Play(stage, lines, port).run()


if __name__ == "__main__":
    lease = {"type": float, "default": 5.0, "help": "seconds that an agent has to renew a job"}
    stages.main("dispatch", KILLS, lease=lease)
