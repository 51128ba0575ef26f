"""Layout of a flow as a tree in which every job appears once, and large groups of similar jobs
appear as one node.

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

from ..ops.flow_report import JobOutline

COLLAPSE_ABOVE = 12  # larger groups of similar jobs become one line
MAX_REFINEMENTS = 30  # of the classes of jobs, each by the neighbours' classes

Links = dict[str, list[str]]


@dataclass(slots=True)
class TreeNode:
    """A node of the tree: one job, or many similar ones."""

    jobs: list[JobOutline]
    parent: int | None = None  # the node of its deepest prerequisite
    other_parents: list[int] = field(default_factory=list)  # nodes of the other prerequisites
    external_prerequisites: list[str] = field(
        default_factory=list
    )  # prerequisites that are not in this flow


def tree_nodes(
    jobs: Sequence[JobOutline],
    edges: Sequence[tuple[str, str]],
    collapse_above: float = COLLAPSE_ABOVE,
) -> list[TreeNode]:
    """The nodes in topological order."""
    before: Links = {job.id: [] for job in jobs}
    after: Links = {job.id: [] for job in jobs}
    for job, follower in edges:
        if follower in before:
            before[follower].append(job)
            after.get(job, []).append(follower)
    depth = _depths(before, after)
    kinds = _job_classes(jobs, before, after, depth, collapse_above)
    nodes = _group_jobs(jobs, kinds, depth, collapse_above)
    node_of = {job.id: number for number, node in enumerate(nodes) for job in node.jobs}
    for node in nodes:
        _attach(node, before, node_of, depth)
    return nodes


def _depths(before: Links, after: Links) -> dict[str, int]:
    """The length of the longest chain of prerequisites of each job."""
    left = {id: sum(one in before for one in ids) for id, ids in before.items()}
    depth = {id: 0 for id, number in left.items() if not number}
    free = list(depth)
    for id in free:  # grows during the loop
        for follower in after[id]:
            left[follower] -= 1
            if not left[follower]:
                depth[follower] = depth[id] + 1
                free.append(follower)
    return depth


def _job_classes(
    jobs: Sequence[JobOutline],
    before: Links,
    after: Links,
    depth: Mapping[str, int],
    collapse_above: float,
) -> dict[str, Hashable]:
    """Jobs of one class have the same task and the same neighbours, or neighbours of the same class
    where that class is a large group itself."""
    kinds: dict[str, Hashable] = {job.id: (job.task, depth.get(job.id)) for job in jobs}
    for _ in range(MAX_REFINEMENTS):
        sizes = Counter(kinds.values())
        if max(sizes.values(), default=0) <= collapse_above:
            break
        known = {id: kind if sizes[kind] > collapse_above else id for id, kind in kinds.items()}
        finer = {
            id: (kind, *(frozenset(known.get(n, n) for n in side[id]) for side in (before, after)))
            for id, kind in kinds.items()
        }
        numbers = {kind: number for number, kind in enumerate(dict.fromkeys(finer.values()))}
        if len(numbers) == len(sizes):
            break
        kinds = {id: numbers[kind] for id, kind in finer.items()}
    return kinds


def _group_jobs(
    jobs: Sequence[JobOutline],
    kinds: Mapping[str, Hashable],
    depth: Mapping[str, int],
    collapse_above: float,
) -> list[TreeNode]:
    sizes = Counter(kinds.values())
    nodes: dict[Hashable, TreeNode] = {}
    for job in jobs:
        kind = kinds[job.id]
        nodes.setdefault(
            kind if sizes[kind] > collapse_above else job.id, TreeNode([])
        ).jobs.append(job)
    return sorted(nodes.values(), key=lambda spot: depth.get(spot.jobs[0].id, 0))


def _attach(
    node: TreeNode, before: Links, node_of: Mapping[str, int], depth: Mapping[str, int]
) -> None:
    """Attach a node to its deepest prerequisite; of several, to the one named last."""
    found: dict[int, int] = {}
    for job in node.jobs:
        for one in before[job.id]:
            if one in node_of:
                found[node_of[one]] = depth.get(one, 0)
            elif one not in node.external_prerequisites:
                node.external_prerequisites.append(one)
    if found:
        node.parent = max(reversed(found), key=lambda number: found[number])
        node.other_parents = [number for number in found if number != node.parent]
