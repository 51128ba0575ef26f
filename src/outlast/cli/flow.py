"""Drawing a flow and listing flows: `outlast flow ID` and `outlast flows`."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from ..model.errors import StoreError
from ..model.humanize import format_duration
from ..model.lifecycle import State
from ..model.outcome import reason
from ..ops import flow_report, report
from ..ops.flow_report import FLOW_STATES, FlowState, JobOutline
from ..ops.operation import Op
from .database_options import json_option, with_client
from .errors import error_message, one_line
from .flow_tree import COLLAPSE_ABOVE, TreeNode, tree_nodes
from .output import STYLES, console, print_json, print_table, screen_console, shorten
from .signals import unwind_on_signals

if TYPE_CHECKING:
    from rich.console import Group
    from rich.text import Text
    from rich.tree import Tree

    from ..client.client import Outlast

BAR_WIDTH = 24  # characters
MAX_NAMED_PREREQUISITES = 3  # beside a job
STATE_ORDER = ("succeeded", "running", "ready", "scheduled", "waiting", "cancelled", "dead")


@dataclass(frozen=True, slots=True)
class FlowSnapshot:
    """A flow at one time by the database's clock."""

    now: float
    flow: FlowState
    jobs: list[JobOutline]
    edges: list[tuple[str, str]]


def read_flow(id: str) -> Op[FlowSnapshot]:
    now = yield from report.clock()
    flow = yield from flow_report.flow(id)
    jobs = yield from flow_report.outline(id)
    edges = yield from flow_report.flow_edges(id)
    return FlowSnapshot(now, flow, jobs, edges)


@click.command(epilog="Example: outlast flow 0198c1f2-7d1e-7c3a-9f65-2b1f0c3d4e5f --watch")
@click.argument("id")
@click.option("--all", "every", is_flag=True, help="Draw every job; collapse no groups.")
@click.option("--watch", "watching", is_flag=True, help="Refresh until the flow has ended.")
@click.option(
    "--interval",
    type=click.FloatRange(0.1, 3600),
    default=1.0,
    show_default=True,
    help="With --watch: seconds between refreshes.",
)
@json_option
@with_client
def flow(ol: Outlast, id: str, every: bool, watching: bool, interval: float, as_json: bool) -> None:
    """Draw a flow: its jobs, their order and their states.

    ID is a flow's, or that of any job in it. Large groups of similar jobs are one line unless --all
    is passed. With --json: the flow, its jobs, and its edges as pairs of a job and a follower.
    """
    if watching and as_json:
        raise click.UsageError("--watch and --json cannot be combined.")
    flow = resolve_flow_id(ol, id)
    if as_json:
        return print_json(flow_json(ol, flow))
    if watching:
        with suppress(KeyboardInterrupt):
            watch(ol, flow, every, interval)
    console().print(view(ol.store.run(read_flow, flow), every))
    return None


def resolve_flow_id(ol: Outlast, id: str) -> str:
    """The flow with this id, or of the job with this id."""
    from ..client.flows import flow_id

    return ol.store.run(flow_report.flow_of, flow_id(id))


def flow_json(ol: Outlast, id: str) -> dict[str, object]:
    facts, after = ol.flow(id).as_json(), None
    facts["jobs"] = []
    while page := ol.flow_jobs(id, after=after):
        facts["jobs"] += page
        after = page[-1].id
    facts["edges"] = ol.store.run(flow_report.flow_edges, id)
    return facts


def watch(ol: Outlast, id: str, every: bool, interval: float) -> None:
    """Refresh until the flow has ended. A database outage is shown and waited out."""
    from rich.live import Live

    snapshot = ol.store.run(read_flow, id)
    unwind_on_signals()
    with Live(view(snapshot, every), console=screen_console(), transient=True) as live:
        while not snapshot.flow.final:
            time.sleep(interval)
            trouble = ""
            try:
                snapshot = ol.store.run(read_flow, id)
            except StoreError as error:
                trouble = error_message(error)
            live.update(view(snapshot, every, trouble))


def view(snapshot: FlowSnapshot, every: bool, trouble: str = "") -> Group:
    from rich.console import Group
    from rich.text import Text

    parts: list[Any] = [*header_lines(snapshot), tree(snapshot, every)]
    more = snapshot.flow.total - len(snapshot.jobs)
    if more > 0:
        parts.append(
            Text(f"… and {more:,} more jobs: see `outlast flow {snapshot.flow.id} --json`")
        )
    return Group(*parts, *([Text(trouble, style="red")] if trouble else []))


def header_lines(snapshot: FlowSnapshot) -> list[Text]:
    from rich.text import Text

    flow = snapshot.flow
    name = f"{one_line(flow.name)}  " if flow.name else ""
    first = Text(f"{name}{flow.id}  ", style="bold")
    first.append(flow.state, style=STYLES.get(flow.state, ""))
    age = format_duration(snapshot.now - flow.created_at.timestamp())
    lines = [first, Text(f"{bar(flow)}  {counts_text(flow.counts)}  {age} old")]
    if flow.key is not None:
        lines.append(Text(f"key: {one_line(flow.key)}", style="dim"))
    if flow.cancelled_at and flow.reason:
        lines.append(Text(f"cancelled: {one_line(flow.reason)}", style="yellow"))
    return lines


def bar(flow: FlowState) -> str:
    full = BAR_WIDTH * flow.ended // flow.total if flow.total else BAR_WIDTH
    return f"{'█' * full}{'░' * (BAR_WIDTH - full)} {flow.ended:,}/{flow.total:,}"


def counts_text(counts: dict[str, int] | Counter[str] | Any) -> str:
    return ", ".join(f"{counts[state]:,} {state}" for state in STATE_ORDER if counts[state])


def tree(snapshot: FlowSnapshot, every: bool) -> Tree:
    from rich.tree import Tree

    nodes = tree_nodes(snapshot.jobs, snapshot.edges, float("inf") if every else COLLAPSE_ABOVE)
    root = Tree("", hide_root=True, guide_style="dim")
    branches: list[Tree] = []
    for node in nodes:
        parent = root if node.parent is None else branches[node.parent]
        branches.append(parent.add(label(node, nodes, snapshot.now)))
    return root


def label(node: TreeNode, nodes: Sequence[TreeNode], now: float) -> Text:
    line = _job_label(node.jobs[0], now) if len(node.jobs) == 1 else _group_label(node.jobs)
    others = [_node_name(nodes[number]) for number in node.other_parents] + [
        f"{_short_id(id)} outside this flow" for id in node.external_prerequisites
    ]
    if others:
        line.append(
            f"  {'also after' if node.parent is not None else 'after'} {_join_names(others)}", "dim"
        )
    return line


def _job_label(job: JobOutline, now: float) -> Text:
    from rich.text import Text

    line = Text(f"{one_line(job.task)} ")
    line.append(job.id, style="dim").append("  ")
    return line.append(_job_status(job, now), style=STYLES.get(job.state, ""))


def _group_label(jobs: Sequence[JobOutline]) -> Text:
    from rich.text import Text

    states = counts_text(Counter(job.state for job in jobs))
    line = Text(f"{one_line(jobs[0].task)} × {len(jobs):,}  {states}")
    failed = next((job for job in jobs if job.state is State.DEAD), None)
    if failed:
        line.append(f"; {_short_id(failed.id)} is dead: {_failure_reason(failed)}", style="red")
    return line


def _job_status(job: JobOutline, now: float) -> str:
    """A job's state in a few words."""
    tries = f", attempt {job.attempt}" if job.attempt > 1 else ""
    took = format_duration((job.finished_at or now) - job.started_at) if job.started_at else ""
    match job.state:
        case State.SUCCEEDED:
            return f"succeeded in {took}{tries}"
        case State.RUNNING:
            return f"running for {took}{tries}{', asked to stop' if job.cancelling else ''}"
        case State.WAITING:
            return f"waiting for {job.waits_for:,}"
        case State.SCHEDULED:
            due = format_duration((job.run_at or now) - now)
            return f"scheduled in {due}" + (f"{tries}: {_failure_reason(job)}" if job.error else "")
        case State.READY:
            return f"ready{tries}"
        case _:
            return f"{job.state}{f' after {took}' if took else ''}{tries}: {_failure_reason(job)}"


def _failure_reason(job: JobOutline) -> str:
    return one_line(shorten(reason(job.error)))


def _node_name(node: TreeNode) -> str:
    first = node.jobs[0]
    many = f"× {len(node.jobs):,}" if len(node.jobs) > 1 else _short_id(first.id)
    return f"{one_line(first.task)} {many}"


def _short_id(id: str) -> str:
    """The end of an id: ids created together begin alike."""
    return f"…{id[-12:]}"


def _join_names(names: Sequence[str]) -> str:
    more = len(names) - MAX_NAMED_PREREQUISITES
    return ", ".join(names[:MAX_NAMED_PREREQUISITES]) + (f" and {more:,} more" if more > 0 else "")


@click.command(epilog="Example: outlast flows --state running --limit 20")
@click.option("--state", type=click.Choice(FLOW_STATES), help="Only this state.")
@click.option(
    "--limit",
    type=click.IntRange(1, 100_000),
    default=50,
    show_default=True,
    help="Maximum number of flows.",
)
@click.option(
    "--before", metavar="ID", help="Continue after this flow, the last of the previous page."
)
@json_option
@with_client
def flows(ol: Outlast, as_json: bool, **chosen: Any) -> None:
    """List flows, newest first, with their jobs counted by state."""
    found = ol.flows(**chosen)
    if as_json:
        return print_json([one.as_json() for one in found])
    return print_table(
        ["id", "name", "key", "state", "ended#", "of#", "jobs", "created"],
        _rows(found),
        none="No matching flows.",
    )


def _rows(flows: Iterable[FlowState]) -> Iterable[Sequence[object]]:
    for one in flows:
        jobs = counts_text(one.counts)
        yield [one.id, one.name, one.key, one.state, one.ended, one.total, jobs, one.created_at]
