"""`outlast verify failover --async`: commits get lost, and two primaries live side by side.

    cut       the standby hears nothing more; jobs that both servers have are claimed at the primary
    split     the standby is promoted, and half of the workers go there: they claim the same jobs
              under the same fences, while the other half go on at the old primary
    die       the old primary is stopped: its workers bring what they have to the new one
    rebuild   it comes back as the standby of the new one

The surviving history is that of the servers in charge, up to the cut and from the promotion on. The
judge wants that in it no claim was accepted for two owners, and that every job that is left has
ended. Acknowledged jobs that are gone are counted: asynchronous replication loses them.
"""

from __future__ import annotations

import asyncio
import faulthandler
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, NamedTuple

from ..ops.finish import Finished
from ..ops.statement import Op, Statement
from ..worker import returns
from .checker import Violation, alive, ended, histories, tidy, whole
from .children import Ended
from .evidence import Evidence, collect
from .failover import Failover
from .lasting import SLOWLY, work_on
from .ledger import Ledger
from .place import Place
from .recovery import Verdict, settle
from .standby import Node
from .workload import Workload

CONTESTED = "contested"  # the queue of jobs that both sides claim
JOBS = 60  # of them at each failover
LASTING = (0.3, 2.5)  # seconds that such a job runs
APART = (0.4, 1.2)  # seconds for which there are two primaries
SIDES = ("left", "right")  # by the names of connections; each prefers one of the servers


class Lost(NamedTuple):
    """What a server accepted between these moments went with it."""

    port: int
    since: float
    until: float


class SplitBrain(Failover):
    columns = ("failovers", "enqueued", "lost", "contested", "refused")
    worker_settings: ClassVar[dict[str, Any]] = {"lease": 6.0, "renew_every": 2.0}
    rate = 80.0
    work_off = 5.0  # what was acknowledged and is lost is never begun

    def load(self) -> None:
        self.lost: list[Lost] = []
        self.urls = {side: self._url(side, node) for side, node in self._preferred().items()}
        self.others = self.crew("right", self._body("right"))
        super().load()
        self.others.fill(self.wish.at_once or self.workers_at_work)

    def worker_body(self) -> Callable[[int], object]:
        return self._body("left")

    def _body(self, side: str) -> Callable[[int], object]:
        return partial(work_watched, self.work, self.urls[side], self.worker_settings)

    def _preferred(self) -> dict[str, Node]:
        return dict(zip(SIDES, self.pair.nodes, strict=True))

    def _url(self, side: str, node: Node) -> str:
        return self.pair.url(node, application_name=side)

    # One failover

    def join(self) -> None:
        """The standby comes after the primary, by itself."""

    def fail_over(self) -> None:
        pair, old = self.pair, self.pair.primary
        self.pause(0.3, 1.0)
        self._at(old, prepare_contest)
        cut_at = time.monotonic()  # whatever was accepted up to here, the standby has
        pair.caught_up(self.hear)
        pair.cut()
        self._at(old, begin_contest)
        self.pause(*APART)
        pair.promote()
        self._send_over(old)
        self._at(pair.primary, begin_contest)
        self.pause(*APART)
        old.crash(self.hear)
        self.lost.append(Lost(old.port, cut_at, time.monotonic()))
        self.hear()
        self.backlog.waiting.clear()  # some of these are gone
        pair.rebuild(self.children, self.hear)

    def _at(self, node: Node, act: Callable[[Workload], object]) -> None:
        """In a child: do something at one of the servers."""
        place = replace(self.here, url=node.url)
        self.children.call(partial(act_at, self.work, place, act))

    def _send_over(self, old: Node) -> None:
        """Those that prefer the new primary lose their connections to the old one."""
        (side,) = (side for side, node in self._preferred().items() if node is not old)
        query = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
        old.ask(f"{query} WHERE application_name = '{side}'")

    # The end

    def wind_down(self, *others: Any) -> None:
        super().wind_down(self.others, *others)

    def _conclude(self) -> None:
        ends: list[Ended] = []
        look = partial(look_at_survivors, self.work, self.here, tuple(self.lost))
        self.children.start(look, ends.append)
        while not ends:
            self.tick()
        if verdict := self.judged(self.here, {}, ends[0]):
            for what, number in verdict.facts.items():
                self.figures.row("load").add(what, number)
            if not verdict.facts["contested"]:
                told = "no job was claimed twice under one fence: this run shows nothing"
                self.figures.complain("load", "load", told)


def act_at(work: Workload, place: Place, act: Callable[[Workload], object]) -> None:
    work.trust(place)
    act(work)
    work.ol.close()


def prepare_contest(work: Workload) -> None:
    """Jobs that nobody claims yet."""
    work.ol.pause(CONTESTED)
    least, most = LASTING
    spans = [least + (most - least) * n / JOBS for n in range(JOBS)]
    task = work.naps.using(queue=CONTESTED)
    for job in work.ol.enqueue(*(task.job(seconds=seconds) for seconds in spans)):
        work.ledger.write("promised", job.id, 0, ["succeeded"])


def begin_contest(work: Workload) -> None:
    work.ol.resume(CONTESTED)


# Who accepted what


def work_watched(work: Workload, url: str, settings: dict[str, Any], number: int) -> None:
    """In a child: a worker that writes down what was accepted for it, and by which server."""
    work.trust(replace(work.place, url=url))
    for name in ("turn", "finish", "finish_with_keys"):
        setattr(returns, name, watched(getattr(returns, name), work.ledger))
    work_on(work, settings, number)


def watched(operation: Callable[..., Op[Any]], ledger: Ledger) -> Callable[..., Op[Any]]:
    def run(*args: Any, **kwargs: Any) -> Op[Any]:
        answer = yield from operation(*args, **kwargs)
        finished: Finished = answer[0] if isinstance(answer, tuple) else answer
        for transition in finished.lost:
            ledger.write("outdated", transition.claim.id, transition.claim.fence)
        if finished.accepted:
            ((port,),) = yield Statement("server_port")
            for transition, _ in finished.accepted:
                id, fence, owner = transition.claim.hold
                ledger.write("accepted", id, fence, [owner, port])
        return answer

    return run


# The judge


def look_at_survivors(work: Workload, place: Place, lost: Sequence[Lost]) -> None:
    """In a child: settle what is left, and judge the history that survived."""
    faulthandler.cancel_dump_traceback_later()
    store = work.ol.store
    store.settings = replace(store.settings, statement_timeout=SLOWLY, deadline=SLOWLY)
    work.ol.resume(CONTESTED)
    asyncio.run(settle(work.ol))
    evidence = collect(store, work.ledger.read(), place.business())
    work.ol.close()
    rules = (ended, whole, alive, histories, tidy)
    wrong = [found for rule in rules for found in rule(evidence)]
    wrong += one_owner(evidence, lost)
    Verdict(wrong, len(evidence.rows), facts=counts(evidence)).write(place.verdict)


def one_owner(evidence: Evidence, lost: Sequence[Lost]) -> Iterator[Violation]:
    """I3: a claim was accepted for one owner, who is the one that the row names."""
    owners: dict[tuple[str, int], set[str]] = defaultdict(set)
    for entry in evidence.entries("accepted"):
        owner, port = entry.said
        gone = any(one.port == port and one.since <= entry.at <= one.until for one in lost)
        if not gone and entry.about in evidence.rows:
            owners[entry.about, entry.fence].add(owner)
    for (id, fence), accepted in owners.items():
        row = evidence.rows[id]
        if len(accepted) > 1:
            told = f"claim {fence} was accepted for {len(accepted)} owners: {sorted(accepted)}"
            yield Violation("I3", id, "zombie", told, row.queue)
        if row.fence == fence and row.worker is not None and row.worker not in accepted:
            told = f"claim {fence} is {row.worker}'s, and was accepted for {sorted(accepted)}"
            yield Violation("I3", id, "zombie", told, row.queue)


def counts(evidence: Evidence) -> dict[str, int]:
    """Acknowledged jobs that are gone; claims that two processes ran under one fence; and outcomes
    that were refused although their job is there."""
    promised = {entry.about for entry in evidence.entries("promised")}
    ran: dict[tuple[str, int], set[int]] = defaultdict(set)
    for entry in evidence.entries("began"):
        ran[entry.about, entry.fence].add(entry.pid)
    return {
        "lost": len(promised - evidence.rows.keys()),
        "contested": sum(len(pids) > 1 for pids in ran.values()),
        "refused": sum(entry.about in evidence.rows for entry in evidence.entries("outdated")),
    }
