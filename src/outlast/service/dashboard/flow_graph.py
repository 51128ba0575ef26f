"""A flow as a picture: jobs in layers, each to the right of all those that it comes after.

    a ──┐
    b ──┼──▶ d ──▶ e          a, b, c: layer 0;  d: 1;  e: 2
    c ──┘

Within a layer, jobs are put near the middle of their neighbours, over and over, so that few lines
cross. What has more than a few hundred jobs is not drawn: nobody could read it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...ops.flow_report import Outline

MOST_DRAWN = 200
ROUNDS = 4
BOX, TALL, ACROSS, DOWN, MARGIN = 168, 40, 64, 14, 8  # pixels
LONGEST_WORD = 20  # characters of a task's name

Edges = Sequence[tuple[str, str]]
Links = dict[str, list[str]]


@dataclass(frozen=True, slots=True)
class Box:
    job: Outline
    x: int
    y: int
    label: str


@dataclass(frozen=True, slots=True)
class Graph:
    boxes: list[Box]
    lines: list[str]  # as an SVG path has them
    width: int
    height: int


def drawn(jobs: Sequence[Outline], edges: Edges) -> Graph:
    before, after = _links(jobs, edges)
    layers = _layers(jobs, before, after)
    _untangle(layers, before, after)
    tallest = max((len(layer) for layer in layers), default=0)
    height = tallest * (TALL + DOWN) - DOWN
    places: dict[str, tuple[int, int]] = {}
    for column, layer in enumerate(layers):
        top = (height - (len(layer) * (TALL + DOWN) - DOWN)) // 2
        for row, id in enumerate(layer):
            places[id] = (MARGIN + column * (BOX + ACROSS), MARGIN + top + row * (TALL + DOWN))
    boxes = [Box(job, *places[job.id], _label(job.task)) for job in jobs]
    lines = [_line(places[one], places[other]) for other in before for one in before[other]]
    width = 2 * MARGIN + len(layers) * (BOX + ACROSS) - ACROSS
    return Graph(boxes, lines, width, height + 2 * MARGIN)


def _links(jobs: Sequence[Outline], edges: Edges) -> tuple[Links, Links]:
    before: Links = {job.id: [] for job in jobs}
    after: Links = {job.id: [] for job in jobs}
    for one, other in edges:
        if one in before and other in before:
            before[other].append(one)
            after[one].append(other)
    return before, after


def _layers(jobs: Sequence[Outline], before: Links, after: Links) -> list[list[str]]:
    """Each job one layer further than the furthest of those before it."""
    left = {id: len(ones) for id, ones in before.items()}
    depth = dict.fromkeys(before, 0)
    free = [job.id for job in jobs if not left[job.id]]
    for id in free:  # grows as it goes
        for other in after[id]:
            depth[other] = max(depth[other], depth[id] + 1)
            left[other] -= 1
            if not left[other]:
                free.append(other)
    layers: list[list[str]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for job in jobs:
        layers[depth[job.id]].append(job.id)
    return layers


def _untangle(layers: list[list[str]], before: Links, after: Links) -> None:
    for turn in range(ROUNDS):
        forth = turn % 2 == 0
        for layer in layers if forth else reversed(layers):
            row = {id: place for ids in layers for place, id in enumerate(ids)}
            _sort(layer, before if forth else after, row)


def _sort(layer: list[str], beside: Links, row: Mapping[str, int]) -> None:
    def middle(id: str) -> float:
        ones = beside[id]
        return sum(row[one] for one in ones) / len(ones) if ones else row[id]

    layer.sort(key=middle)


def _line(one: tuple[int, int], other: tuple[int, int]) -> str:
    x, y, to_x, to_y = one[0] + BOX, one[1] + TALL // 2, other[0], other[1] + TALL // 2
    bend = max(ACROSS // 2, (to_x - x) // 2)
    return f"M{x} {y}C{x + bend} {y} {to_x - bend} {to_y} {to_x} {to_y}"


def _label(task: str) -> str:
    return task if len(task) <= LONGEST_WORD else f"{task[: LONGEST_WORD - 1]}…"
