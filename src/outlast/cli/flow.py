"""A flow as a picture, and flows in a list: `outlast flow ID` and `outlast flows`."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from ..model.errors import StoreError
from ..model.lifecycle import State
from ..model.outcome import reason
from ..model.words import span
from ..ops import flow_report, report
from ..ops.flow_report import FLOW_STATES, FlowState, Outline
from ..ops.statement import Op
from .failing import one_line, sentence
from .flow_tree import CROWD, Spot, placed
from .places import connected, json_option
from .show import STYLES, console, print_json, print_table, short

if TYPE_CHECKING:
    from rich.console import Group
    from rich.text import Text
    from rich.tree import Tree

    from ..client import Outlast

BAR = 24  # characters
NAMED = 3  # prerequisites that are named beside a job
ORDER = ("succeeded", "running", "ready", "scheduled", "waiting", "cancelled", "dead")


@dataclass(frozen=True, slots=True)
class Seen:
    """A flow at one moment by the database's clock."""

    now: float
    flow: FlowState
    jobs: list[Outline]
    edges: list[tuple[str, str]]


def seen(id: str) -> Op[Seen]:
    now = yield from report.clock()
    flow = yield from flow_report.flow(id)
    jobs = yield from flow_report.outline(id)
    edges = yield from flow_report.flow_edges(id)
    return Seen(now, flow, jobs, edges)


@click.command(epilog="Example: outlast flow 0198c1f2-7d1e-7c3a-9f65-2b1f0c3d4e5f --watch")
@click.argument("id")
@click.option("--all", "every", is_flag=True, help="Every job by itself, also of a crowd.")
@click.option("--watch", "watching", is_flag=True, help="Look again and again until it has ended.")
@click.option(
    "--interval",
    type=click.FloatRange(0.1, 3600),
    default=1.0,
    show_default=True,
    help="With --watch: seconds between looks.",
)
@json_option
@connected
def flow(ol: Outlast, id: str, every: bool, watching: bool, interval: float, as_json: bool) -> None:
    """Draw a flow: who comes after whom, and how each job stands.

    ID is a flow's, or that of any job in it. Crowds of jobs that are alike are one line, unless
    --all is said. With --json: the flow, its jobs, and pairs of a job and one that comes after it.
    """
    if watching and as_json:
        raise click.UsageError("--watch is for people: leave out --json.")
    flow = named(ol, id)
    if as_json:
        return print_json(as_facts(ol, flow))
    if watching:
        with suppress(KeyboardInterrupt):
            watch(ol, flow, every, interval)
    console().print(view(ol.store.run(seen, flow), every))
    return None


def named(ol: Outlast, id: str) -> str:
    """The flow that somebody means by an id."""
    from ..flows import flow_id

    return ol.store.run(flow_report.flow_of, flow_id(id))


def as_facts(ol: Outlast, id: str) -> dict[str, Any]:
    facts, after = ol.flow(id).as_json(), None
    facts["jobs"] = []
    while page := ol.flow_jobs(id, after=after):
        facts["jobs"] += page
        after = page[-1].id
    facts["edges"] = ol.store.run(flow_report.flow_edges, id)
    return facts


def watch(ol: Outlast, id: str, every: bool, interval: float) -> None:
    """Look until it has ended. A database that goes away is said, and waited for."""
    from rich.live import Live

    last = ol.store.run(seen, id)
    with Live(view(last, every), console=console(), transient=True) as live:
        while not last.flow.final:
            time.sleep(interval)
            trouble = ""
            try:
                last = ol.store.run(seen, id)
            except StoreError as error:
                trouble = sentence(error)
            live.update(view(last, every, trouble))


def view(seen: Seen, every: bool, trouble: str = "") -> Group:
    from rich.console import Group
    from rich.text import Text

    parts: list[Any] = [*head(seen), tree(seen, every)]
    more = seen.flow.total - len(seen.jobs)
    if more > 0:
        parts.append(Text(f"… and {more:,} more jobs: see `outlast flow {seen.flow.id} --json`"))
    return Group(*parts, *([Text(trouble, style="red")] if trouble else []))


def head(seen: Seen) -> list[Text]:
    from rich.text import Text

    flow = seen.flow
    name = f"{one_line(flow.name)}  " if flow.name else ""
    first = Text(f"{name}{flow.id}  ", style="bold")
    first.append(flow.state, style=STYLES.get(flow.state, ""))
    age = span(seen.now - flow.created_at.timestamp())
    lines = [first, Text(f"{bar(flow)}  {counted(flow.counts)}  {age} old")]
    if flow.key is not None:
        lines.append(Text(f"key: {one_line(flow.key)}", style="dim"))
    if flow.cancelled_at and flow.reason:
        lines.append(Text(f"cancelled: {one_line(flow.reason)}", style="yellow"))
    return lines


def bar(flow: FlowState) -> str:
    full = BAR * flow.ended // flow.total if flow.total else BAR
    return f"{'█' * full}{'░' * (BAR - full)} {flow.ended:,}/{flow.total:,}"


def counted(counts: dict[str, int] | Counter[str] | Any) -> str:
    return ", ".join(f"{counts[state]:,} {state}" for state in ORDER if counts[state])


def tree(seen: Seen, every: bool) -> Tree:
    from rich.tree import Tree

    spots = placed(seen.jobs, seen.edges, float("inf") if every else CROWD)
    root = Tree("", hide_root=True, guide_style="dim")
    branches: list[Tree] = []
    for spot in spots:
        parent = root if spot.under is None else branches[spot.under]
        branches.append(parent.add(label(spot, spots, seen.now)))
    return root


def label(spot: Spot, spots: Sequence[Spot], now: float) -> Text:
    line = _one(spot.jobs[0], now) if len(spot.jobs) == 1 else _many(spot.jobs)
    others = [_name(spots[number]) for number in spot.also] + [
        f"{_short(id)} outside this flow" for id in spot.outside
    ]
    if others:
        line.append(
            f"  {'also after' if spot.under is not None else 'after'} {_list(others)}", "dim"
        )
    return line


def _one(job: Outline, now: float) -> Text:
    from rich.text import Text

    line = Text(f"{one_line(job.task)} ")
    line.append(job.id, style="dim").append("  ")
    return line.append(_told(job, now), style=STYLES.get(job.state, ""))


def _many(jobs: Sequence[Outline]) -> Text:
    from rich.text import Text

    states = counted(Counter(job.state for job in jobs))
    line = Text(f"{one_line(jobs[0].task)} × {len(jobs):,}  {states}")
    failed = next((job for job in jobs if job.state is State.DEAD), None)
    if failed:
        line.append(f"; {_short(failed.id)} is dead: {_why(failed)}", style="red")
    return line


def _told(job: Outline, now: float) -> str:
    """How a job stands, in a few words."""
    tries = f", attempt {job.attempt}" if job.attempt > 1 else ""
    took = span((job.finished_at or now) - job.started_at) if job.started_at else ""
    match job.state:
        case State.SUCCEEDED:
            return f"succeeded in {took}{tries}"
        case State.RUNNING:
            return f"running for {took}{tries}{', asked to stop' if job.cancelling else ''}"
        case State.WAITING:
            return f"waiting for {job.waits_for:,}"
        case State.SCHEDULED:
            due = span((job.run_at or now) - now)
            return f"scheduled in {due}" + (f"{tries}: {_why(job)}" if job.error else "")
        case State.READY:
            return f"ready{tries}"
        case _:
            return f"{job.state}{f' after {took}' if took else ''}{tries}: {_why(job)}"


def _why(job: Outline) -> str:
    return one_line(short(reason(job.error)))


def _name(spot: Spot) -> str:
    first = spot.jobs[0]
    many = f"× {len(spot.jobs):,}" if len(spot.jobs) > 1 else _short(first.id)
    return f"{one_line(first.task)} {many}"


def _short(id: str) -> str:
    """Enough to find the line: ids that were made together begin alike."""
    return f"…{id[-12:]}"


def _list(names: Sequence[str]) -> str:
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more:,} more" if more > 0 else "")


@click.command(epilog="Example: outlast flows --state running --limit 20")
@click.option("--state", type=click.Choice(FLOW_STATES), help="Only these.")
@click.option(
    "--limit",
    type=click.IntRange(1, 100_000),
    default=50,
    show_default=True,
    help="At most so many.",
)
@click.option(
    "--before", metavar="ID", help="Go on after this flow: the last one of the page before."
)
@json_option
@connected
def flows(ol: Outlast, as_json: bool, **chosen: Any) -> None:
    """List flows, newest first, with their jobs counted by state."""
    found = ol.flows(**chosen)
    if as_json:
        return print_json([one.as_json() for one in found])
    return print_table(
        ["id", "name", "key", "state", "ended#", "of#", "jobs", "created"],
        _rows(found),
        none="No flow fits.",
    )


def _rows(flows: Iterable[FlowState]) -> Iterable[Sequence[Any]]:
    for one in flows:
        jobs = counted(one.counts)
        yield [one.id, one.name, one.key, one.state, one.ended, one.total, jobs, one.created_at]
