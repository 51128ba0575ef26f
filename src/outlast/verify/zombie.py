"""`outlast verify zombie`: an owner is frozen at each boundary, loses its job, and comes back.

    freeze    one child per point: it prepares, arms its trap, acts, and stops there by SIGSTOP
    inherit   its lease runs out; an heir takes the job back, claims it, and may even finish it
    thaw      SIGCONT: it goes on as if nothing had happened, and then tries all that owners do
    settle    the heir finishes what is left, and the judge looks

On SQLite a process that is frozen in the middle of a transaction holds the file's lock, so nobody
can take its job: that is counted as held, and whatever it was told must still be true.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

from ..model.errors import StoreUnavailable
from ..model.lifecycle import Outcome
from ..model.settings import StoreSettings
from ..ops.renew import renew
from .campaign import Campaign
from .children import GAVE_UP, Ended, GaveUp
from .connection_room import batches, room_for
from .heir import FOREVER, Heir, Inherited, Lost
from .paths import PATHS, perform
from .paths.holding import event
from .place import Place
from .points import Deck, Point, points_of, rounds, unlocked
from .stage import Stage
from .tracing import Labels, Tracing
from .trap import Trap, freeze
from .workload import Workload

LEASE = 0.3  # seconds: so soon is a frozen owner's job anybody's
FROZEN = 48  # processes at once, if the server has room for so many
SETTLING = 2  # batches that may be settling while others are frozen
INSIDE = 6  # points in a round at which, on SQLite, the file is locked
WORKERS = 12  # points in a round of a whole worker, on SQLite, where most are of no use
PATIENCE = 1.5  # seconds that a worker goes on after it was thawed
HEIRS = 3  # at once, where each zombie has a place of its own
TRIES = 3  # of a point at which that happened: a busy machine, or something is wrong


@dataclass(slots=True)
class Zombie:
    label: str
    point: Point
    place: Place
    pid: int = 0
    frozen: bool = False
    gave_up: bool = False


class Zombies(Campaign):
    name = "zombie"
    columns = ("frozen", "taken", "held", "refused")
    goal = "taken"
    # A frozen session in a transaction holds its rows until the server ends it.
    settings: ClassVar[dict[str, Any]] = {"idle_timeout": 0.4}
    owners = True

    def campaign(self) -> None:
        self._settling = 0
        self._again: list[Point] = []
        self._tries: Counter[Point] = Counter()
        decks = self._decks(Tracing(self, LEASE, lambda *_: None).run())
        room = room_for(self.site)
        for points in rounds(decks, self._luck) if decks else ():
            for batch in batches(points, room, FROZEN):
                if not self.over():
                    again, self._again = self._again, []
                    self._batch(again + batch)
            if self.over():
                break
        while self._settling:
            self.step()

    def _decks(self, traced: dict[str, list[str]]) -> list[Deck]:
        self._luck = luck = random.Random(self.seed)
        every = {path: points_of(path, words) for path, words in sorted(traced.items())}
        if not self.site.is_sqlite:
            return [Deck(points, PATHS[path].most, luck) for path, points in every.items()]
        # Inside a transaction nobody can take the job: a few of those will do.
        free = {path: unlocked(path, words) for path, words in sorted(traced.items())}
        locked = [p for path, points in every.items() for p in points if p not in free[path]]
        decks = [Deck(points, WORKERS if path == "worker-one" else None, luck)
                 for path, points in free.items()]  # fmt: skip
        return [*decks, Deck(locked, INSIDE, luck)]

    def over(self) -> bool:
        """What counts are zombies whose jobs were taken."""
        self.started = self.figures.total("taken")
        return super().over()

    def _batch(self, points: list[Point]) -> None:
        place = self.place()
        zombies: list[Zombie] = []
        for number, point in enumerate(points):
            if self.over():
                break
            zombie = Zombie(f"z{number}", point, self._own(place, f"z{number}"))
            zombies.append(zombie)
            body = partial(walk, self.work, zombie.label, point, zombie.place)
            zombie.pid = self.start(body, partial(self._stopped, zombie))
        self._wait()
        inherited = self._inherit(place, zombies)
        for zombie in zombies:
            if zombie.frozen:
                self.running += 1
                os.kill(zombie.pid, signal.SIGCONT)
        self._wait()
        self._discount(zombies, inherited)
        self._settle(place, zombies, inherited)

    def _own(self, place: Place, label: str) -> Place:
        """On SQLite each has a file of its own, because one that is frozen may hold the lock."""
        if not place.is_sqlite:
            return place
        own = place.beside(label)
        shutil.copyfile(place.url.removeprefix("sqlite:///"), own.url.removeprefix("sqlite:///"))
        return own

    def _stopped(self, zombie: Zombie, ended: Ended) -> None:
        self.running -= 1
        row = self.figures.row(zombie.point.path)
        if ended.stopped:
            zombie.frozen = True
            row.add("frozen")
        elif ended.code == GAVE_UP and self._tries[zombie.point] < TRIES - 1:
            self._tries[zombie.point] += 1
            self._again.append(zombie.point)
            zombie.gave_up = True
        elif not ended.well:
            self.failed(str(zombie.point), zombie.point, ended)
        elif not zombie.frozen:
            row.add("survived")

    def _discount(self, zombies: list[Zombie], inherited: Inherited) -> None:
        """Who gave up has not tried all that is too late: it shows nothing, and is tried again."""
        for zombie in zombies:
            if zombie.gave_up and zombie.label in inherited.taken:
                self.figures.row(zombie.point.path).add("taken", -1)

    def _wait(self) -> None:
        while self.running:
            self.step()

    def _inherit(self, place: Place, zombies: list[Zombie]) -> Inherited:
        """Wait until the jobs of those that are frozen have another owner."""
        frozen = [Lost(z.label, z.place, n % 2 == 0) for n, z in enumerate(zombies) if z.frozen]
        inherited = self._heirs(place, frozen)
        by_label = {zombie.label: zombie for zombie in zombies}
        for what, labels in (("taken", inherited.taken), ("held", inherited.held)):
            for label in labels:
                self.figures.row(by_label[label].point.path).add(what)
        if not self.site.is_sqlite:
            for label in inherited.held:
                point = by_label[label].point
                told = "I2 owner-dead: its frozen owner keeps its job from being taken"
                self.figures.complain(str(point), point.path, told)
        return inherited

    def _heirs(self, place: Place, frozen: list[Lost]) -> Inherited:
        """Several at once where they cannot meet: much of it is waiting for locks."""
        number = HEIRS if place.is_sqlite else 1
        heirs = [Heir(self.work, place.folder / f"inherited-{n}") for n in range(number)]
        shares = [partial(heir.inherit, frozen[n::number], LEASE) for n, heir in enumerate(heirs)]
        self.children.call(*shares)
        inherited = Inherited()
        for heir in heirs:
            inherited.add(heir.inherited())
        return inherited

    def _settle(self, place: Place, zombies: list[Zombie], inherited: Inherited) -> None:
        """While the next batch is being frozen."""
        while self._settling >= SETTLING:
            self.step()
        self._settling += 1
        labels: Labels = {zombie.label: zombie.point for zombie in zombies}
        places = list(dict.fromkeys(zombie.place for zombie in zombies))
        body = partial(look_after, self.work, place, places, inherited, self.wish.keep)
        self.children.start(body, partial(self._settled, place, labels))

    def _settled(self, place: Place, labels: Labels, ended: Ended) -> None:
        self._settling -= 1
        verdict = self.judged(place, labels, ended)
        for label, number in (verdict.refused if verdict else {}).items():
            self.figures.row(labels[label].path).add("refused", number)


def walk(work: Workload, label: str, point: Point, place: Place) -> None:
    """In a child: walk a path, frozen on the way; then do everything that is too late now."""
    trap = Trap(point.at, point.after, freeze)
    trap.install()
    stage = Stage(work.at(place), label, LEASE, trap)
    stage.patience = PATIENCE
    try:
        perform(PATHS[point.path], stage)
        if trap.seen >= trap.at:
            take_time(stage)
            too_late(stage)
    except StoreUnavailable as error:
        # On a busy machine the server may hang up on us thrice. That is no stale write: what was
        # written, and what we were told, is judged all the same.
        raise GaveUp from error


def take_time(stage: Stage) -> None:
    """Only for the freezing were sessions to end so soon."""
    store = stage.ol.store
    store.close()
    store.settings = replace(store.settings, idle_timeout=StoreSettings().idle_timeout)


def look_after(
    work: Workload, place: Place, places: list[Place], inherited: Inherited, keep: bool
) -> None:
    """In a child: settle a batch, which is of no more use then."""
    Heir(work, place.folder / "inherited").settle(places, inherited).write(place.verdict)
    if not keep:
        place.remove()


def too_late(stage: Stage) -> None:
    """All that an owner may do, once more, by one that is none any more."""
    for claim in stage.claims:
        renewed = stage.run(renew, stage.owner, {claim.id: claim.fence}, FOREVER)
        stage.ledger.write("kept", claim.id, claim.fence, claim.id in renewed.kept)
        stage.finish([], [event(claim, 99)])
        stage.step(stage.context(claim), "late")
        stage.complete(claim, late=True)
        for outcome in (Outcome.RELEASED, Outcome.FAILED, Outcome.SUCCEEDED):
            ended = stage.ended(outcome, claim, jobs=2, tell=False)
            stage.finish([(claim, ended)])
