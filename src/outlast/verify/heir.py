"""Whoever gets the jobs of an owner that froze: takes them back, claims them, finishes them."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path as FilePath
from typing import Any, NamedTuple

from ..model.errors import StoreBusy
from ..model.job import Claim
from ..model.lifecycle import FINAL, Outcome, State
from ..ops import cancel_flow
from ..ops.reclaim import reclaim
from .checker import Violation, check
from .evidence import JobRow, collect
from .place import Place
from .recovery import Verdict, late_answers
from .stage import Stage
from .workload import Workload

HEIR = "heir"
LEASE = 120.0  # seconds: the heir is in no hurry
FOREVER = 5000.0  # what a zombie would renew for; nobody else has such a lease
LONGEST = 30.0  # seconds until every job must have been inherited
PATIENCE = 2  # tries: a lock that is held for longer is a frozen owner's


class Lost(NamedTuple):
    """What one frozen owner had in hand: the jobs of its queue."""

    label: str
    place: Place
    finish: bool  # whether the heir is to finish them before the owner comes back


@dataclass(slots=True)
class Inherited:
    taken: list[str] = field(default_factory=list)  # by label
    held: list[str] = field(default_factory=list)
    claims: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def add(self, other: Inherited) -> None:
        self.taken += other.taken
        self.held += other.held
        self.claims |= other.claims


class Heir:
    """In a child of its own each time; what it holds in between is kept in a file."""

    def __init__(self, work: Workload, file: FilePath) -> None:
        self.work = work
        self.file = file

    def inherited(self) -> Inherited:
        return Inherited(**json.loads(self.file.read_text()))

    # While the owners are frozen

    def inherit(self, lost: list[Lost], lease: float) -> None:
        """Take all of it, however often we must look until a lease or a lock is gone."""
        time.sleep(lease)  # nothing can be had before
        found, until = Inherited(), time.monotonic() + LONGEST
        waiting = {place: [one for one in lost if one.place == place] for _, place, _ in lost}
        refused: Counter[Place] = Counter()
        while waiting:
            for place, here in list(waiting.items()):
                if self._took_all(place, here, found, refused):
                    del waiting[place]
                elif refused[place] == PATIENCE or time.monotonic() > until:
                    found.held += [one.label for one in here if one.label not in found.taken]
                    del waiting[place]
            time.sleep(0.02)
        self.file.write_text(json.dumps(asdict(found)))

    def _took_all(
        self, place: Place, lost: list[Lost], found: Inherited, refused: Counter[Place]
    ) -> bool:
        self._go_to(place, lock_timeout=0.05)
        try:
            return not self._take(lost, found)
        except StoreBusy:
            refused[place] += 1
            return False
        finally:
            self.work.ol.close()

    def _take(self, lost: list[Lost], found: Inherited) -> list[JobRow]:
        """One try for all of them; what is still not ours."""
        self._stage("").run(reclaim)
        for one in lost:
            stage = self._stage(one.label)
            if claims := self._claim(stage):
                found.taken += [one.label] if one.label not in found.taken else []
                if one.finish:
                    self._finish(stage, claims)
                else:
                    found.claims.setdefault(one.label, []).extend(
                        claim._asdict() for claim in claims
                    )
        labels = {one.label for one in lost}
        return [row for row in self._rows().values() if row.queue in labels and not _settled(row)]

    def _claim(self, stage: Stage) -> list[Claim]:
        claims = stage.began(stage.claim(lease=LEASE))
        for claim in claims:
            stage.ledger.write("took", claim.id, claim.fence)
        return claims

    def _finish(self, stage: Stage, claims: list[Claim]) -> None:
        ends = [(claim, stage.ended(Outcome.SUCCEEDED, claim)) for claim in claims]
        finished = stage.finish(ends)
        for transition in finished.lost:
            stage.ledger.write("robbed", *transition.claim.hold)

    # When they are back

    def settle(self, places: list[Place], inherited: Inherited) -> Verdict:
        """Finish everything, and judge every place."""
        verdict = Verdict()
        for place in places:
            self._go_to(place)
            verdict.violations += self._extended()
            self._finish_all(inherited)
            business = self.work.place.business()
            evidence = collect(self.work.ol.store, self.work.ledger.read(), business)
            verdict.violations += check(evidence)
            verdict.jobs += len(evidence.rows)
            for queue, number in late_answers(evidence).items():
                verdict.refused[queue] = verdict.refused.get(queue, 0) + number
            self.work.ol.close()
        return verdict

    def _extended(self) -> Iterator[Violation]:
        """A lease that only a zombie can have asked for, on a job that is no longer its own."""
        for row in self._rows().values():
            if row.worker == HEIR and (row.lease_left or 0.0) > LEASE:
                told = "the lease of its owner was changed by somebody else"
                yield Violation("I3", row.id, "zombie", told, row.queue)

    def _finish_all(self, inherited: Inherited) -> None:
        """First what we hold, then whatever else there is to do here."""
        here = self._rows()
        for label, kept in inherited.claims.items():
            claims = [claim for claim in (Claim(**one) for one in kept) if claim.id in here]
            self._finish(self._stage(label), claims)
        until = time.monotonic() + LONGEST
        while (queues := self._open_queues()) and time.monotonic() < until:
            self._stage("").run(reclaim)
            for queue in queues:
                stage = self._stage(queue)
                self._finish(stage, self._claim(stage))
            self._cancel_flows()
            time.sleep(0.02)
        self._cancel_flows()

    def _cancel_flows(self) -> None:
        """Go on with what was cancelled; who was asked to stop and is ours has nothing to stop."""
        store = self.work.ol.store
        for flow, why in store.run(cancel_flow.unsettled):
            while store.run(cancel_flow.go_on, flow, why).left:
                pass

    def _open_queues(self) -> set[str]:
        return {row.queue for row in self._rows().values() if row.state not in FINAL}

    def _rows(self) -> dict[str, JobRow]:
        return collect(self.work.ol.store, []).rows

    def _stage(self, label: str) -> Stage:
        stage = Stage(self.work, label, LEASE)
        stage.owner = HEIR
        return stage

    def _go_to(self, place: Place, **settings: float) -> None:
        self.work.at(place)
        store = self.work.ol.store
        store.settings = replace(store.settings, **settings)  # type: ignore[arg-type]


def _settled(row: JobRow) -> bool:
    """One that waits is nobody's: those before it are."""
    ours = row.state == State.RUNNING and row.worker == HEIR
    return ours or row.state in FINAL or row.state == State.WAITING
