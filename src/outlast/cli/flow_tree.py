"""Where each job of a flow stands in a picture of it: a tree in which every job comes once, and
crowds of jobs that are alike come as one.

    group(a, b, c).then(d)          a × 1,000, all before d

    ├── a                           └── a × 1,000: 997 succeeded, 3 running
    ├── b                               └── d
    └── c
        └── d  also after a, b
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from ..ops.flow_report import Outline

CROWD = 12  # more jobs than this that are alike are told in one line
ROUNDS = 30  # of telling them apart, from their neighbours to the neighbours of those, and so on

Links = dict[str, list[str]]


@dataclass(slots=True)
class Spot:
    """A place in the picture: one job, or many alike."""

    jobs: list[Outline]
    under: int | None = None  # the spot of the last one that it comes after
    also: list[int] = field(default_factory=list)  # those of the others
    outside: list[str] = field(default_factory=list)  # prerequisites that are not in this flow


def placed(
    jobs: Sequence[Outline], edges: Sequence[tuple[str, str]], crowd: float = CROWD
) -> list[Spot]:
    """Spots in such an order that each comes after those that it comes after."""
    before: Links = {job.id: [] for job in jobs}
    after: Links = {job.id: [] for job in jobs}
    for job, follower in edges:
        if follower in before:
            before[follower].append(job)
            after.get(job, []).append(follower)
    depth = _depths(before, after)
    kinds = _kinds(jobs, before, after, depth, crowd)
    spots = _gathered(jobs, kinds, depth, crowd)
    home = {job.id: number for number, spot in enumerate(spots) for job in spot.jobs}
    for spot in spots:
        _hang(spot, before, home, depth)
    return spots


def _depths(before: Links, after: Links) -> dict[str, int]:
    """How many jobs at most come one after the other before each."""
    left = {id: sum(one in before for one in ids) for id, ids in before.items()}
    depth = {id: 0 for id, number in left.items() if not number}
    free = list(depth)
    for id in free:  # grows as it goes
        for follower in after[id]:
            left[follower] -= 1
            if not left[follower]:
                depth[follower] = depth[id] + 1
                free.append(follower)
    return depth


def _kinds(
    jobs: Sequence[Outline], before: Links, after: Links, depth: Mapping[str, int], crowd: float
) -> dict[str, Hashable]:
    """Jobs of one kind have the same task and the same neighbours, or neighbours of one kind where
    those are a crowd themselves."""
    kinds: dict[str, Hashable] = {job.id: (job.task, depth.get(job.id)) for job in jobs}
    for _ in range(ROUNDS):
        sizes = Counter(kinds.values())
        if max(sizes.values(), default=0) <= crowd:
            break
        known = {id: kind if sizes[kind] > crowd else id for id, kind in kinds.items()}
        finer = {
            id: (kind, *(frozenset(known.get(n, n) for n in side[id]) for side in (before, after)))
            for id, kind in kinds.items()
        }
        numbers = {kind: number for number, kind in enumerate(dict.fromkeys(finer.values()))}
        if len(numbers) == len(sizes):
            break
        kinds = {id: numbers[kind] for id, kind in finer.items()}
    return kinds


def _gathered(
    jobs: Sequence[Outline], kinds: Mapping[str, Hashable], depth: Mapping[str, int], crowd: float
) -> list[Spot]:
    sizes = Counter(kinds.values())
    spots: dict[Hashable, Spot] = {}
    for job in jobs:
        kind = kinds[job.id]
        spots.setdefault(kind if sizes[kind] > crowd else job.id, Spot([])).jobs.append(job)
    return sorted(spots.values(), key=lambda spot: depth.get(spot.jobs[0].id, 0))


def _hang(spot: Spot, before: Links, home: Mapping[str, int], depth: Mapping[str, int]) -> None:
    """Under the deepest of those that it comes after; of several, the one named last."""
    found: dict[int, int] = {}
    for job in spot.jobs:
        for one in before[job.id]:
            if one in home:
                found[home[one]] = depth.get(one, 0)
            elif one not in spot.outside:
                spot.outside.append(one)
    if found:
        spot.under = max(reversed(found), key=lambda number: found[number])
        spot.also = [number for number in found if number != spot.under]
