"""Flows on the command line: drawn, listed, cancelled, retried."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from outlast import Context, Flow, FlowClosed, Outlast, Permanent, chain, group
from outlast.client.verb_arguments import actor
from outlast.ops import cancel_flow, retention
from tests.cli.conftest import Commands, Program, patiently, work_off

UNKNOWN = "0198c1f2-7d1e-7c3a-9f65-2b1f0c3d4e5f"


class Tasks:
    """`one` succeeds unless its number is 13, `total` adds up what came before it."""

    def __init__(self, ol: Outlast) -> None:
        @ol.task
        def one(n: int) -> int:
            if n == self.bad:
                raise Permanent(f"{n} brings bad luck")
            return n

        @ol.task
        def total(ctx: Context) -> int:
            return sum(n or 0 for n in ctx.results())

        self.bad, self.one, self.total = 13, one, total

    def ones(self, *numbers: int) -> list[Any]:
        return [self.one.job(n) for n in numbers]


@pytest.fixture
def tasks(ol: Outlast) -> Tasks:
    return Tasks(ol)


def flow_of(jobs: list[Any]) -> str:
    (flow,) = {job.flow for job in jobs}
    assert flow is not None
    return str(flow)


def tree(out: str) -> list[str]:
    """The lines below the head, without ids."""
    return [line for line in out.splitlines()[2:] if line.strip()]


# One flow


def test_a_flow_is_drawn_with_states_times_and_errors(
    run: Commands, ol: Outlast, tasks: Tasks
) -> None:
    """R167: by its own id or by that of any job in it."""
    last = tasks.total.using(when="finished").job()
    a, b, sum_, after = ol.enqueue(group(*tasks.ones(1, 13)).then(last).then(tasks.total.job()))
    id = flow_of([a, b, sum_, after])
    drawn = run("flow", id).out.splitlines()
    assert drawn[0] == f"{id}  running"
    assert drawn[1].startswith("░" * 24 + " 0/4  2 ready, 2 waiting  ")
    asyncio.run(work_off(ol))
    drawn = run("flow", sum_.id).out.splitlines()
    assert drawn[0] == f"{id}  partial"
    assert drawn[1].startswith("█" * 24 + " 4/4  3 succeeded, 1 dead  ")
    assert [line.split("  ")[0] for line in drawn[2:4]] == [f"one {a.id}", f"one {b.id}"]
    assert "succeeded in " in drawn[2]
    assert "dead after " in drawn[3] and "Permanent: 13 brings bad luck" in drawn[3]
    assert drawn[4].startswith(f"└── total {sum_.id}  succeeded in ")
    assert drawn[4].endswith(f"also after one …{a.id[-12:]}")
    assert drawn[5].startswith(f"    └── total {after.id}  succeeded in ")


def test_a_job_with_several_prerequisites_is_drawn_once_under_the_last(
    run: Commands, ol: Outlast, tasks: Tasks
) -> None:
    """R167: also if one of them is deep in the graph, and the flow has a name."""
    flow = Flow("month end")
    first, second = flow.add(tasks.one.job(1)), flow.add(tasks.one.job(2))
    middle = flow.add(tasks.total.job(), after=first)
    flow.add(tasks.total.job(), after=[middle, second])
    jobs = ol.enqueue(flow)
    out = run("flow", flow_of(jobs)).out
    assert out.startswith(f"month end  {jobs[0].flow}  running\n")
    assert [out.count(job.id) for job in jobs] == [1, 1, 1, 1]
    one, under, last, other = tree(out)
    assert one.startswith(f"one {jobs[0].id}") and other.startswith(f"one {jobs[1].id}")
    assert under.startswith(f"└── total {jobs[2].id}  waiting for 1")
    assert last.startswith(f"    └── total {jobs[3].id}  waiting for 2")
    assert last.endswith(f"also after one …{jobs[1].id[-12:]}")


def test_what_comes_after_a_job_outside_the_flow_says_so(
    run: Commands, ol: Outlast, tasks: Tasks
) -> None:
    stranger = tasks.one.enqueue(1)
    flow = Flow()
    flow.add(tasks.total.job(), after=stranger)
    (line,) = tree(run("flow", flow_of(ol.enqueue(flow))).out)
    assert line.endswith(f"waiting for 1  after …{stranger.id[-12:]} outside this flow")


def test_crowds_are_one_line_unless_all_is_said(run: Commands, ol: Outlast, tasks: Tasks) -> None:
    """R167: a thousand jobs that are alike are counted by state; one that is not stands alone."""
    pairs = [chain(tasks.one.job(n), tasks.total.job()) for n in range(20)]
    jobs = ol.enqueue(group(*pairs, *tasks.ones(50)).then(tasks.total.job()))
    id = flow_of(jobs)
    asyncio.run(work_off(ol))
    drawn = tree(run("flow", id).out)
    assert len(drawn) == 4
    assert drawn[0].startswith("one × 20  19 succeeded, 1 dead; …")
    assert drawn[0].endswith("is dead: outlast.model.errors.Permanent: 13 brings bad luck")
    assert drawn[1].startswith("└── total × 20  19 succeeded, 1 dead; …")
    assert drawn[2].startswith(f"    └── total {jobs[-1].id}  dead: PrerequisiteFailed")
    assert drawn[2].endswith(f"also after one …{jobs[-2].id[-12:]}")
    assert drawn[3].startswith(f"one {jobs[-2].id}  succeeded")
    assert len(tree(run("flow", id, "--all").out)) == 42


def test_a_long_chain_of_one_task_is_no_crowd(run: Commands, ol: Outlast, tasks: Tasks) -> None:
    jobs = ol.enqueue(chain(*tasks.ones(*range(40))))
    out = run("flow", flow_of(jobs)).out
    assert [out.count(job.id) for job in jobs] == [1] * 40


def test_a_flow_as_json_is_all_that_is_known_of_it(
    run: Commands, ol: Outlast, tasks: Tasks
) -> None:
    """R167: the same as the library says."""
    jobs = ol.enqueue(group(*tasks.ones(1, 2)).then(tasks.total.job()))
    id = flow_of(jobs)
    told = run("flow", jobs[1].id, "--json").json
    assert told["jobs"] == [job.as_json() for job in ol.flow_jobs(id)]
    assert told["edges"] == [[jobs[0].id, jobs[2].id], [jobs[1].id, jobs[2].id]]
    assert {name: told[name] for name in ol.flow(id).as_json()} == ol.flow(id).as_json()


def test_a_flow_is_watched_until_it_has_ended(
    run: Commands, ol: Outlast, program: Program, tasks: Tasks
) -> None:
    worker = program.worker()
    jobs = [run("enqueue", "add", "--args", '{"a": 1}').out.strip()]
    flow = Flow("watched")
    flow.add(ol.task(name="add")(lambda a: a).job(a=2), after=jobs)
    id = flow_of(ol.enqueue(flow))
    watched = run("flow", id, "--watch", "--interval", "0.1")
    assert watched.code == 0, worker.output()
    assert watched.out.splitlines()[0] == f"watched  {id}  succeeded"


@pytest.mark.kinds("sqlite")
def test_watching_is_for_people(run: Commands) -> None:
    assert run("flow", UNKNOWN, "--watch", "--json").code == 2


@pytest.mark.parametrize("command", [["flow"], ["cancel", "--flow"], ["retry", "--flow"]])
def test_an_id_that_means_no_flow_is_told_apart(
    run: Commands, tasks: Tasks, command: list[str]
) -> None:
    """R117: nonsense, an id that is not there, and a job that stands alone."""
    nonsense = run(*command, "the big one")
    assert (nonsense.code, nonsense.err) == (1, "outlast: 'the big one' is not a flow id\n")
    unknown = run(*command, UNKNOWN)
    assert unknown.code == 1
    assert unknown.err.startswith(f"outlast: There is no flow {UNKNOWN}, and no job:")
    alone = tasks.one.enqueue(1).id
    answer = run(*command, alone)
    assert (answer.code, answer.err) == (
        1, f"outlast: Job {alone} belongs to no flow: see `outlast job {alone}`.\n",
    )  # fmt: skip


def test_what_a_job_says_cannot_steer_the_terminal(run: Commands, ol: Outlast) -> None:
    """R167: a flow's name and a job's error are printed with their control characters visible."""

    @ol.task
    def shout() -> None:
        raise Permanent("\x1b[2J gone")

    flow = Flow("\x1b[31mred")
    flow.add(shout.job())
    id = flow_of(ol.enqueue(flow))
    asyncio.run(work_off(ol))
    for out in (run("flow", id).out, run("flows").out):
        assert "\x1b" not in out and "\\x1b[31mred" in out


def test_the_key_of_a_flow_is_shown(run: Commands, ol: Outlast, tasks: Tasks) -> None:
    id = flow_of(ol.enqueue(chain(*tasks.ones(1, 2)).using(key="order-7")))
    assert "key: order-7" in run("flow", id).out
    assert "order-7" in run("flows").out


# Flows


def test_flows_are_listed_newest_first_and_by_state(
    run: Commands, ol: Outlast, tasks: Tasks
) -> None:
    """R167: as the library lists them, a page at a time."""
    assert run("flows").out == "No matching flows.\n"
    good = flow_of(ol.enqueue(group(*tasks.ones(1, 2))))
    bad = flow_of(ol.enqueue(chain(*tasks.ones(13, 2))))
    half = flow_of(ol.enqueue(chain(*tasks.ones(2, 13))))
    asyncio.run(work_off(ol))
    fresh = flow_of(ol.enqueue(chain(*tasks.ones(1, 2))))
    gone = flow_of(ol.enqueue(group(*tasks.ones(1, 2), fail_fast=True)))
    ol.cancel_flow(gone)
    listed = run("flows", "--json").json
    states = {good: "succeeded", bad: "dead", half: "partial", fresh: "running", gone: "cancelled"}
    assert [flow["id"] for flow in listed] == [gone, fresh, half, bad, good]
    assert {flow["id"]: flow["state"] for flow in listed} == states
    assert listed == [flow.as_json() for flow in ol.flows()]
    for id, state in states.items():
        assert [flow["id"] for flow in run("flows", "--state", state, "--json").json] == [id]
        assert id in run("flows", "--state", state).out
    page = run("flows", "--limit", 2, "--json").json
    assert [flow["id"] for flow in page] == [gone, fresh]
    rest = run("flows", "--limit", 2, "--before", fresh, "--json").json
    assert [flow["id"] for flow in rest] == [half, bad]


def test_flows_in_a_state_are_found_behind_many_others(ol: Outlast, tasks: Tasks) -> None:
    first = flow_of(ol.enqueue(group(*tasks.ones(1))))
    ol.cancel_flow(first)
    ol.enqueue(*(group(*tasks.ones(n)) for n in range(600)))
    assert [flow.id for flow in ol.flows(state="cancelled", limit=1)] == [first]
    assert len(ol.flows(state="running", limit=1000)) == 600


@pytest.mark.kinds("sqlite")
def test_a_state_that_no_flow_has_is_refused(run: Commands, ol: Outlast) -> None:
    assert run("flows", "--state", "ready").code == 2
    with pytest.raises(ValueError, match="must be one of running, cancelling"):
        ol.flows(state="ready")
    assert run("flows", "--before", "x").err == "outlast: 'x' is not a flow id\n"


async def test_the_async_verbs_say_the_same(ol: Outlast, tasks: Tasks) -> None:
    jobs = await ol.aenqueue(group(*tasks.ones(1, 2)), tasks.one.job(3))
    id = flow_of(jobs[:2])
    assert await ol.aflows() == ol.flows() == [await ol.aflow(id)]
    assert await ol.aflow_jobs(id) == ol.flow_jobs(id) == [ol.job(job.id) for job in jobs[:2]]
    assert [job.id for job in await ol.aflow_jobs(id, after=jobs[0].id)] == [jobs[1].id]
    assert await ol.aflow_jobs(id, after=jobs[1].id) == []
    await ol.acancel_flow(id)
    assert await ol.aretry_flow(id) == 2
    assert (await ol.aflow(id)).state == "running"
    await ol.aclose()


# Cancel and retry


def test_cancelling_a_flow_twice_is_one_cancel(run: Commands, ol: Outlast, tasks: Tasks) -> None:
    """R117: the second one ends, too, and the reason is that of the first."""
    jobs = ol.enqueue(group(*tasks.ones(1, 2)).then(tasks.total.job()))
    id = flow_of(jobs)
    first = run("cancel", "--flow", id, "--reason", "wrong month")
    second = run("cancel", "--flow", jobs[2].id)
    assert (first.code, first.out) == (second.code, second.out) == (0, f"{id} cancelled\n")
    assert [job.state for job in ol.flow_jobs(id)] == ["cancelled"] * 3
    assert run("flow", id).out.splitlines()[2] == "cancelled: wrong month"
    assert run("cancel", "--flow", id, "--json").json == ol.flow(id).as_json()


def test_a_running_job_of_a_cancelled_flow_is_asked_to_stop(
    run: Commands, ol: Outlast, program: Program
) -> None:
    """R117: until it has, the flow cannot be retried."""
    wait_for = ol.task(name="wait_for", queue="slow")(lambda file: file)
    jobs = ol.enqueue(chain(wait_for.job("/never"), wait_for.job("/never")))
    id = flow_of(jobs)
    worker = program.worker("--cancel-grace", "0.5")
    patiently(lambda: ol.job(jobs[0].id).state == "running", message=worker.output)
    answer = run("cancel", "--flow", id)
    assert answer.out == f"{id} cancelling; 1 running job asked to stop\n"
    with pytest.raises(FlowClosed, match="still being cancelled"):
        ol.retry_flow(id)
    patiently(lambda: ol.flow(id).state == "cancelled", message=worker.output)


def test_a_retried_flow_goes_on_where_it_failed(run: Commands, ol: Outlast, tasks: Tasks) -> None:
    """R052: what has succeeded is not run again, and who did it is on record."""
    jobs = ol.enqueue(group(*tasks.ones(1, 13)).then(tasks.total.job()).then(tasks.total.job()))
    id = flow_of(jobs)
    asyncio.run(work_off(ol))
    assert [job.state for job in ol.flow_jobs(id)] == ["succeeded", "dead", "dead", "dead"]
    tasks.bad = 0
    assert run("retry", "--flow", id).out == f"Retried 3 jobs of flow {id}.\n"
    assert run("retry", "--flow", id, "--json").json == {"flow": id, "retried": 0}
    asyncio.run(work_off(ol))
    assert ol.flow(id).state == "succeeded"
    assert [job.result for job in ol.flow_jobs(id)] == [1, 13, 14, 14]
    assert ol.job(jobs[0].id).attempt == 1
    _, events = ol.history(jobs[3].id)
    assert [(event.kind, event.data["by"]) for event in events] == [("redrive", actor())]


@pytest.mark.parametrize("number", [3, 450])
def test_a_cancelled_flow_is_open_again_when_it_is_retried(
    run: Commands, ol: Outlast, tasks: Tasks, number: int
) -> None:
    """R052: its jobs may add others again; also a flow of several pages, last ones first."""
    flow = Flow(fail_fast=True)
    flow.add(tasks.total.job(), after=[str(n) for n in range(number)])
    for n in range(number):
        flow.add(tasks.one.job(n + 100), name=str(n))
    id = flow_of(ol.enqueue(flow))
    ol.cancel_flow(id)
    told = run("retry", "--flow", id, "--json").json
    assert told == {"flow": id, "retried": number + 1}
    state = ol.flow(id)
    assert (state.state, state.cancelled_at, state.reason) == ("running", None, None)
    tasks.one.using(flow=id).enqueue(1)  # a cancelled flow would refuse it
    asyncio.run(work_off(ol))
    assert ol.flow(id).state == "succeeded"


def test_one_job_of_a_cancelled_flow_that_is_retried_opens_the_flow_again(ol: Outlast) -> None:
    """R052: else what it adds would be dropped."""

    @ol.task
    def grow(ctx: Context, more: int = 1) -> None:
        if more:
            ctx.enqueue(grow.job(more=more - 1))

    jobs = ol.enqueue(group(grow.job(), grow.job(more=0)))
    id = flow_of(jobs)
    ol.cancel_flow(id)
    ol.retry(jobs[0].id)
    assert ol.flow(id).state == "running"
    asyncio.run(work_off(ol))
    assert ol.flow(id).state == "partial"
    assert [str(job.state) for job in ol.flow_jobs(id)] == ["succeeded", "cancelled", "succeeded"]


def test_who_still_cancels_a_flow_that_was_opened_again_changes_nothing(
    ol: Outlast, tasks: Tasks
) -> None:
    """R117: a worker that heard of the cancel long ago, and goes on with it now."""
    jobs = ol.enqueue(group(*tasks.ones(1, 2)))
    id = flow_of(jobs)
    ol.cancel_flow(id)
    ol.retry_flow(id)
    late = ol.store.run(cancel_flow.cancel_page, id, "its flow was cancelled")
    assert (late.ended, late.stopping, late.left) == (0, 0, False)
    assert [job.state for job in ol.flow_jobs(id)] == ["ready", "ready"]


def test_a_flow_that_is_retried_late_still_finds_its_results(ol: Outlast, tasks: Tasks) -> None:
    """R052: what a waiting or cancelled job would read is kept as long as that job is."""
    done, late = tasks.one.enqueue(1), tasks.one.using(delay=3600).enqueue(2)
    asyncio.run(work_off(ol))
    flow = Flow()
    flow.add(tasks.total.job(), after=[done, late])
    (total,) = ol.enqueue(flow)
    assert ol.store.run(retention.prune, "succeeded", 0.0, 100) == 0
    ol.cancel_flow(flow_of([total]))
    assert ol.store.run(retention.prune, "succeeded", 0.0, 100) == 0
    ol.cancel(late.id)
    ol.retry(late.id)  # which makes it due now
    ol.retry_flow(flow_of([total]))
    asyncio.run(work_off(ol))
    assert ol.job(total.id).result == 3
    assert sum(ol.store.run(retention.prune, "succeeded", 0.0, 100) for _ in range(3)) == 3


def test_a_group_that_failed_fast_may_fail_anew(run: Commands, ol: Outlast, tasks: Tasks) -> None:
    """R052: its failures are counted from nought, and it is cancelled again at the first."""
    late = tasks.one.using(delay=3600)
    jobs = ol.enqueue(group(*tasks.ones(13), late.job(2), fail_fast=True))
    id = flow_of(jobs)

    def both_end() -> list[str]:
        asyncio.run(work_off(ol))
        asyncio.run(settled(ol, id))
        return [str(job.state) for job in ol.flow_jobs(id)]

    assert both_end() == ["dead", "cancelled"]
    assert run("retry", "--flow", id, "--json").json["retried"] == 2
    assert both_end()[0] == "dead"


async def settled(ol: Outlast, id: str) -> None:
    from tests.support import aeventually

    async def final() -> bool:
        return (await ol.aflow(id)).final

    async with ol.worker(poll_max=0.1):
        await aeventually(final, timeout=30.0)
    await ol.aclose()


@pytest.mark.kinds("sqlite")
@pytest.mark.parametrize(
    "said",
    [
        ["cancel"],
        ["cancel", UNKNOWN, "--flow", UNKNOWN],
        ["retry", UNKNOWN, "--flow", UNKNOWN],
        ["retry", "--all", "--flow", UNKNOWN],
        ["retry", "--flow", UNKNOWN, "--queue", "a"],
    ],
)
def test_it_must_be_clear_what_is_meant(run: Commands, said: list[str]) -> None:
    assert run(*said).code == 2


# One job of a flow


def test_a_job_is_shown_with_its_flow_and_its_neighbours(
    run: Commands, ol: Outlast, tasks: Tasks
) -> None:
    """R167, R199: the first few of them, with their states."""
    jobs = ol.enqueue(group(*tasks.ones(*range(8))).then(tasks.total.job()))
    out = run("job", jobs[-1].id).out
    assert f"flow        {jobs[0].flow} " in out
    assert f"after       one {jobs[0].id} (ready)\n" in out
    assert f"one {jobs[5].id}" not in out and "after       … and more\n" in out
    assert f"before      total {jobs[-1].id} (waiting)\n" in run("job", jobs[0].id).out
    told = run("job", jobs[-1].id, "--json").json
    assert told["flow"] == jobs[0].flow and told["followers"] == []
    first = {"id": jobs[0].id, "task": "one", "state": "ready"}
    assert told["prerequisites"][0] == first and len(told["prerequisites"]) == 5
    assert json.loads(run("job", jobs[0].id, "--json").out)["followers"] == [
        {"id": jobs[-1].id, "task": "total", "state": "waiting"}
    ]
