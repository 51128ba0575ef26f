"""Jobs that wait for each other, as callers say it.

    chain(a, b, c)                      b after a, c after b
    group(a, b, c).then(d)              d after all three
    flow = Flow(); x = flow.add(a); flow.add(b, after=x)      any graph without a cycle

`layout` makes rows of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any, Self

from .errors import InvalidOption
from .job import Job
from .options import WHEN, check_name
from .task import Call


class Keyed:
    """A flow may have one key: while its jobs are kept, there is one flow per (tenant, key)."""

    key: str | None = None

    def using(self, *, key: str) -> Self:
        """The same flow under an idempotency key. Enqueued again under that key, nothing is made:
        the caller gets the jobs of the flow that exists."""
        keyed = copy(self)
        keyed.key = check_name("key", key)
        return keyed


class Group(Keyed):
    """Jobs that may run side by side, and whose ends can be waited for together. Made by
    `group(…)`; its parts are calls, chains and groups."""

    def __init__(self, *parts: Part, fail_fast: bool | int = False) -> None:
        self.parts = _parts(parts)
        self.fail_after = _fail_after(fail_fast)

    def then(self, *parts: Part, when: str | None = None) -> Chain:
        """This group and what comes after all of it, as a chain.

        Each part comes after the one before it. They need all of the group to have succeeded, and
        end dead if something in it did not; with `when="finished"` it only has to have ended.
        """
        first = copy(self)
        first.key = None  # the key belongs to the whole flow
        whole = Chain(first)
        whole.key = self.key
        return whole.then(*parts, when=when)


class Chain(Keyed):
    """Parts that come one after the other: each after all that comes last in the one before. Made
    by `chain(…)`; its parts are calls, groups and chains."""

    def __init__(self, *parts: Part) -> None:
        self.parts = _parts(parts)
        self._when: dict[int, str] = {}

    def then(self, *parts: Part, when: str | None = None) -> Chain:
        """A longer chain; this one stays as it is. With `when="finished"` these parts also run if
        what comes before them did not succeed."""
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
    """A job's place in a flow: what `Flow.add` returns, to be given to the `after` of others."""

    call: Call
    name: str | None = None
    after: list[Any] = field(default_factory=list)  # nodes, calls, jobs, ids, names
    when: str | None = None
    fail_group: str | None = None
    quorum: float | None = None  # a milestone: the share of those before it that must have ended
    id: str = ""
    flow: Any = None
    unit: str | None = None  # the group, chain or flow that it was given in


class Flow(Keyed):
    """A graph of jobs: `add` each with those it comes after, then enqueue the flow.

        flow = Flow("month end")
        first, second = flow.add(load.job(1)), flow.add(load.job(2))
        flow.add(report.job(), after=[first, second])
        jobs = ol.enqueue(flow)
        ol.flow(jobs[0].flow).state

    It is a plan, and may be enqueued more than once: each time it is a new flow, unless it has a
    `key`: then it is one flow. With `fail_fast`, the first of its jobs that goes dead or is
    cancelled has the others cancelled; a number says how many it takes.
    """

    def __init__(
        self, name: str | None = None, *, key: str | None = None, fail_fast: bool | int = False
    ) -> None:
        self.name = name
        self.key = None if key is None else check_name("key", key)
        self.fail_after = _fail_after(fail_fast)
        self.nodes: list[Node] = []

    def add(
        self, call: Call, *, name: str | None = None, after: Any = (), when: str | None = None
    ) -> Node:
        """Add a job, after one or a list of: nodes of this flow, names of such (also of ones that
        are added later), jobs that exist already, or ids of those.

        It needs them to have succeeded, and ends dead if one did not; with `when="finished"` they
        only have to have ended.
        """
        if not isinstance(call, Call):
            raise InvalidOption(option="flow", reason=f"takes task.job(…), not {call!r:.80}")
        node = Node(call, name, as_list(after), None if when is None else _when(when))
        self.nodes.append(node)
        return node

    def milestone(self, share: float, call: Call) -> Node:
        """Add a job that runs once, when this share (0 … 1) of what was added before it has ended,
        in whatever way. Other milestones are not counted."""
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

    With `fail_fast`, the first of them that goes dead or is cancelled has the others cancelled; a
    number says how many it takes. A group of nothing is no obstacle to what comes after it.
    """
    return Group(*parts, fail_fast=fail_fast)


def chain(*parts: Part) -> Chain:
    """Jobs (or groups, or chains) one after the other: `chain(a.job(), b.job(), c.job())`.

    Each needs the one before it to have succeeded: see `Chain.then` for other cases.
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


def as_list(after: Any) -> list[Any]:
    if after is None:
        return []
    if isinstance(after, str | Job | Call | Node):
        return [after]
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
