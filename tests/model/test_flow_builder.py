"""Calls, chains, groups and flows as rows, whole, before anything is inserted."""

from __future__ import annotations

import time
from typing import Any

import pytest

from outlast import InvalidArguments, InvalidFlow, InvalidOption
from outlast.model import flow_builder
from outlast.model.flow import Flow, chain, group
from outlast.model.flow_builder import build_jobs, merge_duplicates
from outlast.model.job import NewJob
from outlast.model.options import Options
from outlast.model.task import Call, TaskDefinition


def work(n: int = 0) -> int:
    return n


WORK = TaskDefinition("work", work)


def call(n: int = 0, **said: Any) -> Call:
    return Call(WORK, Options(**said), (n,), {})


def edges(jobs: list[NewJob]) -> list[list[int]]:
    """For each row the numbers of those it comes after."""
    place = {job.id: n for n, job in enumerate(jobs)}
    return [[place[id] for id in job.after] for job in jobs]


def test_a_plain_call_waits_for_nothing_and_concerns_nobody() -> None:
    (job,) = build_jobs([call()])
    assert (job.after, job.waits_for, job.tied, job.flow, job.new_flows) == ((), 0, False, None, ())


SHAPES = {
    "chain": (chain(call(), call(), call()), [[], [0], [1]]),
    "fan-in": (group(call(), call()).then(call()), [[], [], [0, 1]]),
    "fan-out": (chain(call(), group(call(), call())), [[], [0], [0]]),
    "crossed": (chain(group(call(), call()), group(call(), call())), [[], [], [0, 1], [0, 1]]),
    "chains in a group": (
        group(chain(call(), call()), chain(call(), call())).then(call()),
        [[], [0], [], [2], [1, 3]],
    ),
    "an empty group passes on": (chain(call(), group(), call()), [[], [0]]),
    "nothing first": (group().then(call()), [[]]),
    "nothing at all": (group(), []),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_has_its_edges(shape: str) -> None:
    """R098, R107: in the order given, and each waits for as many as it comes after."""
    item, expected = SHAPES[shape]
    jobs = build_jobs([item])
    assert edges(jobs) == expected
    assert [job.waits_for for job in jobs] == [len(before) for before in expected]
    followed = {n for before in expected for n in before}
    assert [job.tied for job in jobs] == [n in followed for n in range(len(jobs))]
    assert len({job.flow for job in jobs}) <= 1
    assert [len(job.new_flows) for job in jobs] == [1, *[0] * (len(jobs) - 1)][: len(jobs)]


def test_a_graph_links_nodes_names_and_calls() -> None:
    """R107: also names of nodes that are added later; each once."""
    graph = Flow("report")
    a = graph.add(call(1), name="a", after="b")
    graph.add(call(2), name="b")
    graph.add(call(3), after=[a, "b", "a"], when="finished")
    jobs = build_jobs([graph])
    assert edges(jobs) == [[1], [], [0, 1]]
    assert [job.needs for job in jobs] == ["succeeded", "succeeded", "finished"]
    assert jobs[0].new_flows[0].name == "report"
    assert edges(build_jobs([graph, graph])) == [[1], [], [0, 1], [4], [], [3, 4]]


def test_a_call_may_name_another_beside_it() -> None:
    first = call(1)
    assert edges(build_jobs([first, call(2, after=first)])) == [[], [0]]


def test_a_milestone_waits_for_its_share() -> None:
    """R108: rounded up, at least one; milestones wait for no milestone."""
    graph = Flow()
    for n in range(7):
        graph.add(call(n))
    for share in (0.01, 0.5, 1):
        graph.milestone(share, call(9))
    marks = build_jobs([graph])[-3:]
    assert [(mark.waits_for, mark.quorum, len(mark.after)) for mark in marks] == [
        (1, 1, 7), (4, 4, 7), (7, 7, 7),
    ]  # fmt: skip
    assert {mark.needs for mark in marks} == {"finished"}
    for wrong in (0, 1.5, "half"):
        with pytest.raises(InvalidOption, match="milestone"):
            graph.milestone(wrong, call())  # type: ignore[arg-type]


def test_those_that_fail_together_are_a_team() -> None:
    """R097, R120: a part of their flow, which says after how many failures."""
    jobs = build_jobs([group(call(), call(), fail_fast=2).then(call())])
    whole, team = jobs[0].new_flows
    assert (team.part_of, team.fail_after) == (whole.id, 2)
    assert [job.team for job in jobs] == [team.id, team.id, None]
    assert [job.tied for job in jobs] == [True, True, False]


def test_every_problem_is_named_at_once() -> None:
    """R107: names taken twice, and those that nobody has."""
    graph = Flow()
    graph.add(call(), name="a", after=["x", call()])
    graph.add(call(), name="a")
    with pytest.raises(InvalidFlow) as refused:
        build_jobs([graph])
    assert [message for _, message in refused.value.problems] == [
        "the name 'a' is taken twice",
        "comes after 'x', which is neither a job of this flow nor the id of one",
        "comes after a job that is not among those enqueued here",
    ]


def test_a_cycle_is_refused_with_all_who_are_in_it_or_after_it() -> None:
    """R107"""
    graph = Flow()
    graph.add(call(), name="free")
    graph.add(call(), name="a", after=["b", "free"])
    graph.add(call(), name="b", after="a")
    graph.add(call(), name="after", after="b")
    graph.add(call(), name="self", after="self")
    with pytest.raises(InvalidFlow) as refused:
        build_jobs([graph])
    assert [place.split("'")[1] for place, _ in refused.value.problems] == [
        "a", "b", "after", "self",
    ]  # fmt: skip


def test_a_crowd_of_pairs_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """R109: two large groups one after the other would have too many edges."""
    monkeypatch.setattr(flow_builder, "MAX_EDGES", 99)
    ten = [call() for _ in range(10)]
    with pytest.raises(InvalidOption, match="put one job between"):
        build_jobs([chain(group(*ten), group(*ten))])
    assert len(build_jobs([chain(group(*ten), call(), group(*ten))])) == 21


def test_what_joins_is_what_nobody_else_comes_after() -> None:
    """Whoever waits for the job that adds a chain waits for its last step."""
    jobs = build_jobs([chain(call(), call()), call()], None, "the-job")
    assert [job.sibling_of for job in jobs] == [None, "the-job", "the-job"]


def test_what_comes_within_a_flow_founds_none() -> None:
    jobs = build_jobs([chain(call(), call()), call()], "the-flow")
    assert {job.flow for job in jobs} == {"the-flow"}
    assert all(job.new_flows == () for job in jobs)


def test_all_bad_arguments_of_a_flow_are_told_together() -> None:
    bad = Call(WORK, Options(), ("x", 2, 3), {})
    with pytest.raises(InvalidArguments, match="2 of 3 jobs"):
        build_jobs([group(bad, call(), bad)])


def test_nonsense_is_refused_where_it_is_said() -> None:
    for wrong in (0, -1, 1.5):
        with pytest.raises(InvalidOption, match="fail_fast"):
            group(call(), fail_fast=wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="number 1"):
        chain(call(), "x")  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="when"):
        chain(call()).then(call(), when="never")
    with pytest.raises(InvalidOption):
        build_jobs(["x"])
    with pytest.raises(InvalidOption, match="cannot wait"):
        build_jobs([call(on_dead=call(after="01a1e2b1-2d3e-7001-8658-7ba8177a651d"))])


def test_one_that_stands_for_two_is_waited_for_once() -> None:
    one, two, last = build_jobs([group(call(), call()).then(call())])
    kept = merge_duplicates([one, last], {two.id: one.id})
    assert [(job.after, job.waits_for, job.tied) for job in kept] == [
        ((), 0, True), ((one.id,), 1, False),
    ]  # fmt: skip


def test_a_list_of_calls_is_refused_with_what_to_write() -> None:
    with pytest.raises(InvalidOption, match=r"enqueue\(\*items\)"):
        build_jobs([[call(), call()]])


def test_ten_times_the_jobs_of_a_group_take_about_ten_times_as_long() -> None:
    """R098: in time of the processor. A pass over all jobs for each of them made it 45 times."""

    def build(number: int) -> float:
        item = group(*(call() for _ in range(number))).then(call())
        began = time.process_time()
        assert len(build_jobs([item])) == number + 1
        return time.process_time() - began

    build(100)
    few = min(build(2000) for _ in range(3))
    assert build(20_000) < 25 * few


@pytest.mark.parametrize("wrap", [chain, group])
def test_parts_too_deep_inside_each_other_are_refused_with_what_to_do(wrap: Any) -> None:
    """R005: a chain of a chain of a chain, as a loop makes it."""
    part: Any = call()
    for _ in range(5000):
        part = wrap(part)
    with pytest.raises(InvalidOption, match=r"\.then"):
        build_jobs([part])


@pytest.mark.parametrize("depth", [40, 5000])
def test_hooks_too_deep_inside_each_other_are_refused_before_they_fill_the_memory(
    depth: int,
) -> None:
    """R005: the text of each level is escaped in that of the next, and so twice as long."""
    hook = call()
    for _ in range(depth):
        hook = call(on_success=hook)
    with pytest.raises(InvalidOption, match=r"on_success calls .* Use chain"):
        build_jobs([hook])
