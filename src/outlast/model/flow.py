"""Flows as callers declare them: jobs that wait for each other.

    chain(a, b, c)                      b after a, c after b
    group(a, b, c).then(d)              d after all three
    flow = Flow(); x = flow.add(a); flow.add(b, after=x)      any graph without a cycle

`flow_builder` turns these declarations into rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any, Self

from .errors import InvalidOption
from .job import Job
from .options import MAX_NAME_CHARS, WHEN, check_name
from .safe_text import storable_text
from .task import Call


class Keyed:
    """A flow may have one key: while its jobs are kept, there is one flow per (tenant, key)."""

    key: str | None = None

    def using(self, *, key: str) -> Self:
        """The same flow under an idempotency key. Enqueuing it again under that key creates nothing
        and returns the jobs of the existing flow."""
        keyed = copy(self)
        keyed.key = check_name("key", key)
        return keyed


class Group(Keyed):
    """Jobs that may run concurrently, and that others can wait for together. Made by `group(…)`;
    its parts are calls, chains and groups."""

    def __init__(self, *parts: Part, fail_fast: bool | int = False) -> None:
        self.parts = _parts(parts)
        self.fail_after = _fail_after(fail_fast)

    def then(self, *parts: Part, when: str | None = None) -> Chain:
        """A chain of this group and parts that follow all of it.

        Each part follows the one before it. The parts need every job of the group to have succeeded
        and end dead otherwise; with `when="finished"` the group only has to have ended.
        """
        first = copy(self)
        first.key = None  # the key belongs to the whole flow
        whole = Chain(first)
        whole.key = self.key
        return whole.then(*parts, when=when)


class Chain(Keyed):
    """Parts in sequence: each follows the last jobs of the one before. Made by `chain(…)`; its
    parts are calls, groups and chains."""

    def __init__(self, *parts: Part) -> None:
        self.parts = _parts(parts)
        self._when: dict[int, str] = {}

    def then(self, *parts: Part, when: str | None = None) -> Chain:
        """A longer chain; this one is unchanged. With `when="finished"` the new parts also run if
        the parts before them did not succeed."""
        longer = Chain(*self.parts, *parts)
        longer._when = dict(self._when)
        longer.key = self.key
        if when is not None:
            start = len(self.parts)
            longer._when |= {start + n: _when(when) for n in range(len(parts))}
        return longer

    def steps(self) -> Iterator[tuple[Part, str | None]]:
        return ((part, self._when.get(n)) for n, part in enumerate(self.parts))


@dataclass(eq=False)
class Node:
    """A job's node in a flow: returned by `Flow.add`, and accepted by the `after` of others."""

    call: Call
    name: str | None = None
    after: list[Any] = field(default_factory=list)  # nodes, calls, jobs, ids, names
    when: str | None = None
    fail_group: str | None = None
    quorum: float | None = None  # milestone: share of earlier jobs that must have ended
    id: str = ""
    flow: Any = None
    unit: str | None = None  # the group, chain or flow that contains it


class Flow(Keyed):
    """A graph of jobs: `add` each job with its prerequisites, then enqueue the flow.

        flow = Flow("month end")
        first, second = flow.add(load.job(1)), flow.add(load.job(2))
        flow.add(report.job(), after=[first, second])
        jobs = ol.enqueue(flow)
        ol.flow(jobs[0].flow).state

    A `Flow` can be enqueued more than once. Each time creates a new flow, unless it has a `key`.
    With `fail_fast`, the first job that goes dead or is cancelled cancels the others; a number sets
    how many such jobs it takes.
    """

    def __init__(
        self, name: str | None = None, *, key: str | None = None, fail_fast: bool | int = False
    ) -> None:
        self.name = None if name is None else check_flow_name(name)
        self.key = None if key is None else check_name("key", key)
        self.fail_after = _fail_after(fail_fast)
        self.nodes: list[Node] = []

    def add(
        self, call: Call, *, name: str | None = None, after: object = (), when: str | None = None
    ) -> Node:
        """Add a job after one prerequisite or a list of them: nodes of this flow, names of
        nodes (also of nodes added later), existing jobs, or ids of existing jobs.

        The job needs its prerequisites to have succeeded and ends dead otherwise; with
        `when="finished"` they only have to have ended.
        """
        if not isinstance(call, Call):
            raise InvalidOption(option="flow", reason=f"takes task.job(…), not {call!r:.80}")
        if name is not None and not isinstance(name, str):
            raise InvalidOption(option="name", reason=f"must be text, not {name!r:.80}")
        node = Node(call, name, as_list(after), None if when is None else _when(when))
        self.nodes.append(node)
        return node

    def milestone(self, share: float, call: Call) -> Node:
        """Add a job that runs once, when this share (0 … 1) of the jobs added before it has ended,
        in whatever state. Other milestones are not counted."""
        if not isinstance(share, int | float) or not 0 < share <= 1:
            raise InvalidOption(option="milestone", reason=f"must be in (0, 1], not {share!r}")
        before = [node for node in self.nodes if node.quorum is None]
        node = Node(call, None, list(before), "finished", quorum=float(share))
        self.nodes.append(node)
        return node


Part = Call | Group | Chain
Enqueueable = Call | Group | Chain | Flow


def group(*parts: Part, fail_fast: bool | int = False) -> Group:
    """Jobs (or chains, or groups) side by side: `group(a.job(), b.job()).then(c.job())`.

    With `fail_fast`, the first job that goes dead or is cancelled cancels the others; a number sets
    how many such jobs it takes. An empty group completes immediately.
    """
    return Group(*parts, fail_fast=fail_fast)


def chain(*parts: Part) -> Chain:
    """Jobs (or groups, or chains) in sequence: `chain(a.job(), b.job(), c.job())`.

    Each part needs the one before it to have succeeded; see `Chain.then` for other conditions.
    """
    return Chain(*parts)


def _parts(parts: Sequence[Any]) -> tuple[Any, ...]:
    for number, part in enumerate(parts):
        if not isinstance(part, Call | Group | Chain):
            raise InvalidOption(
                option="flow",
                reason=f"takes task.job(…), group(…) and chain(…); number {number} is {part!r:.80}",
            )
    return tuple(parts)


def check_flow_name(name: object) -> str:
    """Validate a flow's name: text that both databases can hold. Pages escape it."""
    if not isinstance(name, str) or storable_text(name, MAX_NAME_CHARS) != name:
        reason = (
            f"must be at most {MAX_NAME_CHARS} characters of text, without U+0000 and lone"
            f" surrogates, not {name!r:.80}"
        )
        raise InvalidOption(option="name", reason=reason)
    return name


def as_list(after: Any) -> list[Any]:
    if after is None:
        return []
    if isinstance(after, str | Job | Call | Node):
        return [after]
    if not isinstance(after, Iterable):
        reason = f"must be a job, its id, a call or a list of these, not {after!r:.80}"
        raise InvalidOption(option="after", reason=reason)
    return list(after)


def _when(when: str) -> str:
    if when not in WHEN:
        raise InvalidOption(option="when", reason=f"must be one of {', '.join(WHEN)}, not {when!r}")
    return when


def _fail_after(fail_fast: bool | int) -> int | None:
    if isinstance(fail_fast, bool):
        return 1 if fail_fast else None
    if not isinstance(fail_fast, int) or fail_fast < 1:
        raise InvalidOption(
            option="fail_fast", reason=f"must be True, False or a whole number, not {fail_fast!r}"
        )
    return fail_fast
