"""Layout of a flow as a graph: jobs in layers, each to the right of its prerequisites.

    a ──┐
    b ──┼──▶ d ──▶ e          a, b, c: layer 0;  d: 1;  e: 2
    c ──┘

Within a layer, jobs are sorted by the mean position of their neighbours, in several rounds, so that
few lines cross. A flow with more than MAX_DRAWN_JOBS jobs is not drawn: it would be unreadable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...ops.flow_report import JobOutline

MAX_DRAWN_JOBS = 200
UNTANGLE_ROUNDS = 4
BOX_WIDTH, BOX_HEIGHT, COLUMN_GAP, ROW_GAP, MARGIN = 168, 40, 64, 14, 8  # pixels
MAX_LABEL_LENGTH = 20  # characters of a task's name

Edges = Sequence[tuple[str, str]]
Links = dict[str, list[str]]


@dataclass(frozen=True, slots=True)
class GraphBox:
    job: JobOutline
    x: int
    y: int
    label: str


@dataclass(frozen=True, slots=True)
class FlowGraph:
    boxes: list[GraphBox]
    lines: list[str]  # SVG paths
    width: int
    height: int


def layout_graph(jobs: Sequence[JobOutline], edges: Edges) -> FlowGraph:
    before, after = _links(jobs, edges)
    layers = _layers(jobs, before, after)
    _untangle(layers, before, after)
    tallest = max((len(layer) for layer in layers), default=0)
    height = tallest * (BOX_HEIGHT + ROW_GAP) - ROW_GAP
    positions: dict[str, tuple[int, int]] = {}
    for column, layer in enumerate(layers):
        top = (height - (len(layer) * (BOX_HEIGHT + ROW_GAP) - ROW_GAP)) // 2
        for row, id in enumerate(layer):
            positions[id] = (
                MARGIN + column * (BOX_WIDTH + COLUMN_GAP),
                MARGIN + top + row * (BOX_HEIGHT + ROW_GAP),
            )
    boxes = [GraphBox(job, *positions[job.id], _label(job.task)) for job in jobs]
    lines = [_line(positions[one], positions[other]) for other in before for one in before[other]]
    width = 2 * MARGIN + len(layers) * (BOX_WIDTH + COLUMN_GAP) - COLUMN_GAP
    return FlowGraph(boxes, lines, width, height + 2 * MARGIN)


def _links(jobs: Sequence[JobOutline], edges: Edges) -> tuple[Links, Links]:
    before: Links = {job.id: [] for job in jobs}
    after: Links = {job.id: [] for job in jobs}
    for one, other in edges:
        if one in before and other in before:
            before[other].append(one)
            after[one].append(other)
    return before, after


def _layers(jobs: Sequence[JobOutline], before: Links, after: Links) -> list[list[str]]:
    """Each job's layer: one more than the highest of its prerequisites."""
    left = {id: len(ones) for id, ones in before.items()}
    depth = dict.fromkeys(before, 0)
    free = [job.id for job in jobs if not left[job.id]]
    for id in free:  # grows during the loop
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
    for round in range(UNTANGLE_ROUNDS):
        forward = round % 2 == 0
        for layer in layers if forward else reversed(layers):
            row = {id: position for ids in layers for position, id in enumerate(ids)}
            _sort(layer, before if forward else after, row)


def _sort(layer: list[str], beside: Links, row: Mapping[str, int]) -> None:
    def middle(id: str) -> float:
        ones = beside[id]
        return sum(row[one] for one in ones) / len(ones) if ones else row[id]

    layer.sort(key=middle)


def _line(one: tuple[int, int], other: tuple[int, int]) -> str:
    x, y, to_x, to_y = (
        one[0] + BOX_WIDTH,
        one[1] + BOX_HEIGHT // 2,
        other[0],
        other[1] + BOX_HEIGHT // 2,
    )
    bend = max(COLUMN_GAP // 2, (to_x - x) // 2)
    return f"M{x} {y}C{x + bend} {y} {to_x - bend} {to_y} {to_x} {to_y}"


def _label(task: str) -> str:
    return task if len(task) <= MAX_LABEL_LENGTH else f"{task[: MAX_LABEL_LENGTH - 1]}…"
