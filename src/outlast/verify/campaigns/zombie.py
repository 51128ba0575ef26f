"""`outlast verify zombie`: an owner is frozen at each point, loses its job, and comes back.

    freeze    one child per point: it prepares, arms its interceptor, acts, and stops by SIGSTOP
    succeed   its lease expires; a successor reclaims the job, claims it, and may even finish it
    thaw      SIGCONT: it continues as if nothing had happened, then tries every write of an owner
    settle    the successor finishes the remaining jobs, which are checked

On SQLite a process that is frozen inside a transaction holds the file's lock, so its job cannot be
reclaimed: that is counted as held, and every response that it received must still be true.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

from ...model.errors import StoreUnavailable
from ...model.lifecycle import Outcome
from ...model.settings import StoreSettings
from ...ops.renew import renew
from ..children import GAVE_UP_EXIT_CODE, ChildExit, GaveUp
from ..connection_limits import allowed_connections, batches_within
from ..faults.interceptor import Interceptor, freeze_self
from ..faults.points import FaultPoint, PointDeck, points_of, points_outside_transactions, rounds
from ..scenario_context import ScenarioContext
from ..scenarios import SCENARIOS, run_scenario
from ..scenarios.claims import make_event
from ..successor import ZOMBIE_LEASE_S, FrozenOwner, Successor, TakenOver
from ..workload import Workload
from ..workspace import Workspace
from .campaign import Campaign
from .count_points import Labels, PointCounter

LEASE_S = 0.3  # seconds: the job of a frozen owner is soon reclaimed
MAX_FROZEN = 48  # concurrent processes, if the server has enough connections
MAX_SETTLING = 2  # batches that settle while the next ones are frozen
LOCKED_POINTS_PER_ROUND = 6  # points per round at which, on SQLite, the file is locked
WORKER_POINTS_PER_ROUND = 12  # of a whole worker on SQLite; most of them prove nothing
MAX_WORK_S = 1.5  # seconds that a worker continues after it was thawed
MAX_SUCCESSORS = 3  # concurrently, where each zombie has its own workspace
MAX_TRIES = 3  # tries of a point whose zombie gave up: a busy machine, or a fault


@dataclass(slots=True)
class Zombie:
    label: str
    point: FaultPoint
    workspace: Workspace
    pid: int = 0
    frozen: bool = False
    gave_up: bool = False


class ZombieCampaign(Campaign):
    name = "zombie"
    columns = ("frozen", "taken", "held", "refused")
    goal = "taken"
    # A frozen session in a transaction holds its rows until the server ends it.
    settings: ClassVar[dict[str, object]] = {"idle_timeout": 0.4}
    owners_only = True

    def campaign(self) -> None:
        self._settling = 0
        self._retry_points: list[FaultPoint] = []
        self._tries: Counter[FaultPoint] = Counter()
        decks = self._decks(PointCounter(self, LEASE_S, lambda *_: None).run())
        room = allowed_connections(self.workspaces)
        for points in rounds(decks, self._rng) if decks else ():
            for batch in batches_within(points, room, MAX_FROZEN):
                if not self.is_over():
                    again, self._retry_points = self._retry_points, []
                    self._run_batch(again + batch)
            if self.is_over():
                break
        while self._settling:
            self.wait_for_child()

    def _decks(self, traced: dict[str, list[str]]) -> list[PointDeck]:
        self._rng = rng = random.Random(self.seed)
        every = {path: points_of(path, words) for path, words in sorted(traced.items())}
        if not self.workspaces.is_sqlite:
            return [
                PointDeck(points, SCENARIOS[path].max_points, rng) for path, points in every.items()
            ]
        # Inside a transaction the job cannot be reclaimed: a few such points suffice.
        free = {
            path: points_outside_transactions(path, words) for path, words in sorted(traced.items())
        }
        locked = [p for path, points in every.items() for p in points if p not in free[path]]
        decks = [PointDeck(points, WORKER_POINTS_PER_ROUND if path == "worker-one" else None, rng)
                 for path, points in free.items()]  # fmt: skip
        return [*decks, PointDeck(locked, LOCKED_POINTS_PER_ROUND, rng)]

    def is_over(self) -> bool:
        """Only zombies whose jobs were reclaimed count."""
        self.points_started = self.results.total("taken")
        return super().is_over()

    def _run_batch(self, points: list[FaultPoint]) -> None:
        workspace = self.next_workspace()
        zombies: list[Zombie] = []
        for number, point in enumerate(points):
            if self.is_over():
                break
            zombie = Zombie(f"z{number}", point, self._own_workspace(workspace, f"z{number}"))
            zombies.append(zombie)
            body = partial(walk, self.work, zombie.label, point, zombie.workspace)
            zombie.pid = self.start_child(body, partial(self._stopped, zombie))
        self._wait_until_frozen()
        taken_over = self._take_over(workspace, zombies)
        for zombie in zombies:
            if zombie.frozen:
                self.running += 1
                os.kill(zombie.pid, signal.SIGCONT)
        self._wait_until_frozen()
        self._discard_given_up(zombies, taken_over)
        self._settle(workspace, zombies, taken_over)

    def _own_workspace(self, workspace: Workspace, label: str) -> Workspace:
        """The zombie's workspace: on SQLite a file of its own, because it may hold the lock."""
        if not workspace.is_sqlite:
            return workspace
        own = workspace.sibling(label)
        shutil.copyfile(
            workspace.url.removeprefix("sqlite:///"), own.url.removeprefix("sqlite:///")
        )
        return own

    def _stopped(self, zombie: Zombie, exit: ChildExit) -> None:
        self.running -= 1
        row = self.results.counts_of(zombie.point.scenario)
        if exit.stopped:
            zombie.frozen = True
            row.add("frozen")
        elif exit.code == GAVE_UP_EXIT_CODE and self._tries[zombie.point] < MAX_TRIES - 1:
            self._tries[zombie.point] += 1
            self._retry_points.append(zombie.point)
            zombie.gave_up = True
        elif not exit.ok:
            self.record_failure(str(zombie.point), zombie.point, exit)
        elif not zombie.frozen:
            row.add("survived")

    def _discard_given_up(self, zombies: list[Zombie], taken_over: TakenOver) -> None:
        """Discard zombies that gave up: they have not tried all late writes, so their points are
        tried again."""
        for zombie in zombies:
            if zombie.gave_up and zombie.label in taken_over.taken:
                self.results.counts_of(zombie.point.scenario).add("taken", -1)

    def _wait_until_frozen(self) -> None:
        while self.running:
            self.wait_for_child()

    def _take_over(self, workspace: Workspace, zombies: list[Zombie]) -> TakenOver:
        """Wait until the jobs of frozen owners have other owners."""
        frozen = [
            FrozenOwner(z.label, z.workspace, n % 2 == 0) for n, z in enumerate(zombies) if z.frozen
        ]
        taken_over = self._run_successors(workspace, frozen)
        by_label = {zombie.label: zombie for zombie in zombies}
        for what, labels in (("taken", taken_over.taken), ("held", taken_over.held)):
            for label in labels:
                self.results.counts_of(by_label[label].point.scenario).add(what)
        if not self.workspaces.is_sqlite:
            for label in taken_over.held:
                point = by_label[label].point
                message = "I2 owner-dead: its frozen owner keeps its job from being reclaimed"
                self.results.add_violation(str(point), point.scenario, message)
        return taken_over

    def _run_successors(self, workspace: Workspace, frozen: list[FrozenOwner]) -> TakenOver:
        """Run successors concurrently where they cannot interfere: they mostly wait for locks."""
        number = MAX_SUCCESSORS if workspace.is_sqlite else 1
        successors = [
            Successor(self.work, workspace.folder / f"inherited-{n}") for n in range(number)
        ]
        shares = [
            partial(successor.take_over, frozen[n::number], LEASE_S)
            for n, successor in enumerate(successors)
        ]
        self.children.run_all(*shares)
        taken_over = TakenOver()
        for successor in successors:
            taken_over.add(successor.taken_over())
        return taken_over

    def _settle(self, workspace: Workspace, zombies: list[Zombie], taken_over: TakenOver) -> None:
        """Settle while the next batch is being frozen."""
        while self._settling >= MAX_SETTLING:
            self.wait_for_child()
        self._settling += 1
        labels: Labels = {zombie.label: zombie.point for zombie in zombies}
        workspaces = list(dict.fromkeys(zombie.workspace for zombie in zombies))
        body = partial(
            settle_and_judge, self.work, workspace, workspaces, taken_over, self.options.keep
        )
        self.children.start(body, partial(self._settled, workspace, labels))

    def _settled(self, workspace: Workspace, labels: Labels, exit: ChildExit) -> None:
        self._settling -= 1
        verdict = self.record_verdict(workspace, labels, exit)
        for label, number in (verdict.refused if verdict else {}).items():
            self.results.counts_of(labels[label].scenario).add("refused", number)


def walk(work: Workload, label: str, point: FaultPoint, workspace: Workspace) -> None:
    """In a child: run a scenario, frozen on the way; then try every late write."""
    interceptor = Interceptor(point.exchange, point.after, freeze_self)
    interceptor.install()
    ctx = ScenarioContext(work.move_to(workspace), label, LEASE_S, interceptor)
    ctx.max_work_s = MAX_WORK_S
    try:
        run_scenario(SCENARIOS[point.scenario], ctx)
        if interceptor.count >= interceptor.at:
            restore_timeouts(ctx)
            try_stale_writes(ctx)
    except StoreUnavailable as error:
        # On a busy machine the server may disconnect three times. That is not a stale write: the
        # checker still judges all writes and responses.
        raise GaveUp from error


def restore_timeouts(ctx: ScenarioContext) -> None:
    """Restore the session timeouts, which were short only for the freeze."""
    store = ctx.ol.store
    store.close()
    store.settings = replace(store.settings, idle_timeout=StoreSettings().idle_timeout)


def settle_and_judge(
    work: Workload,
    workspace: Workspace,
    workspaces: list[Workspace],
    taken_over: TakenOver,
    keep: bool,
) -> None:
    """In a child: settle a batch, whose workspace is then removed."""
    Successor(work, workspace.folder / "inherited").settle(workspaces, taken_over).write(
        workspace.verdict_file
    )
    if not keep:
        workspace.remove()


def try_stale_writes(ctx: ScenarioContext) -> None:
    """Try every write of an owner again, as a former owner."""
    for claim in ctx.claims:
        renewed = ctx.run(renew, ctx.owner, {claim.id: claim.fence}, ZOMBIE_LEASE_S)
        ctx.ledger.write("kept", claim.id, claim.fence, claim.id in renewed.kept)
        ctx.finish([], [make_event(claim, 99)])
        ctx.step(ctx.context(claim), "late")
        ctx.complete(claim, late=True)
        for outcome in (Outcome.RELEASED, Outcome.FAILED, Outcome.SUCCEEDED):
            exit = ctx.attempt_end(outcome, claim, jobs=2, record=False)
            ctx.finish([(claim, exit)])
