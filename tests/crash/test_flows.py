"""A flow's worker may die at any moment: the next stage starts all the same, once."""

from __future__ import annotations

import time

from outlast import chain, group
from outlast.ops.flow_report import prerequisites
from tests.crash.test_enqueue import started
from tests.store.flowing import left
from tests.support import Database, Processes, eventually
from tests.support.app import BOUND, PATIENCE, SLACK, App


def test_a_worker_killed_with_the_last_finish_leaves_a_callback_that_runs(
    app: App, processes: Processes
) -> None:
    """R064, R068, R091: the commit that ends the last child starts what comes after; whoever made
    it may die in the same moment. Died before the commit, the child runs again, and then too."""
    points = {"committed succeed_tied": 1, "before notify_followers": 2, "before succeed_tied": 2}
    flows = {}
    for point in points:
        queue = point.replace(" ", "-")
        flows[point] = app.ol.enqueue(
            group(app.mark.using(queue=queue).job(1)).then(app.mark.using(queue=queue).job(2))
        )
    victims = [app.start_worker(processes, point, point.replace(" ", "-")) for point in points]
    assert [victim.wait(PATIENCE) for victim in victims] == [-9, -9, -9]
    last = flows["committed succeed_tied"][1]
    assert app.ol.job(last.id).state == "ready", "nobody but the dead one had a hand in it"
    app.start_worker(processes)
    for point, runs in points.items():
        child, follower = flows[point]
        assert app.finished(follower).attempt == 1
        assert len(app.ledger.read("run", follower.id)) == 1
        assert len(app.ledger.read("run", child.id)) == runs, point


def test_a_child_killed_in_its_work_runs_again_and_counts_once(
    app: App, processes: Processes
) -> None:
    """R065, R094: nine are through when the worker of the tenth dies; the callback gets ten
    results, and the nine are as they were."""
    children = [app.mark.job(n) for n in range(9)]
    *done, slow, last = app.ol.enqueue(
        group(*children, app.gated.job("never")).then(app.mark.job(99))
    )
    victim = app.start_worker(processes)
    app.ledger.wait("start", slow.id)
    before = [app.finished(job) for job in done]
    victim.kill()
    killed_at = time.monotonic()
    app.start_worker(processes)
    again = app.ledger.wait("start", slow.id, count=2)[1]
    assert again.at - killed_at < BOUND + SLACK + PATIENCE
    assert app.finished(slow).attempt == 2
    assert app.finished(last).attempt == 1
    assert len(app.ledger.read("run", last.id)) == 1
    assert [app.ol.job(job.id) for job in done] == before
    read = app.ol.store.run(prerequisites, last.id, -1, 100)
    assert [job.result for _, job in read[:9]] == list(range(9))
    assert [job.id for _, job in read] == [job.id for job in (*done, slow)]
    assert app.ol.flow(str(last.flow)).state == "succeeded"


def test_a_hook_runs_although_its_worker_died_with_the_commit(
    app: App, processes: Processes
) -> None:
    """R126, R132: it was made in that commit. Before it there is none: a resource that it releases
    is still held (R131)."""
    jobs = {
        point: app.mark.using(
            queue=point.replace(" ", "-"), on_success=app.mark.using(queue="hooks").job(n)
        ).enqueue(n)
        for n, point in enumerate(("committed succeed_tied", "after insert_jobs"))
    }
    victims = [app.start_worker(processes, point, job.queue) for point, job in jobs.items()]
    assert [victim.wait(PATIENCE) for victim in victims] == [-9, -9]
    hooks = app.ol.jobs(queue="hooks")
    assert [hook.args["n"] for hook in hooks] == [0]
    app.start_worker(processes)
    for job in jobs.values():
        app.finished(job)
    hooks = app.ol.jobs(queue="hooks")
    assert sorted(hook.args["n"] for hook in hooks) == [0, 1]
    for hook in hooks:
        app.finished(hook)
        assert len(app.ledger.read("run", hook.id)) == 1


def test_a_stage_killed_in_its_work_leaves_the_one_before_as_it_was(
    app: App, processes: Processes
) -> None:
    """R065: only the second stage runs again."""
    one, two = app.ol.enqueue(chain(app.mark.job(7), app.gated.job("never")))
    victim = app.start_worker(processes)
    app.ledger.wait("start", two.id)
    before = app.ol.job(one.id)
    victim.kill()
    app.start_worker(processes)
    assert app.finished(two).attempt == 2
    assert app.ol.job(one.id) == before
    assert len(app.ledger.read("run", one.id)) == 1


def test_a_fan_out_whose_enqueuer_was_killed_is_there_whole_or_not_at_all(
    app: App, processes: Processes, database: Database
) -> None:
    """R067, R093, `half-fanned`: at every step of the conversation, and right after the commit."""
    script = """
from outlast import group

def enqueue(point):
    arm(point)
    app.ol.enqueue(group(*[app.mark.job(n) for n in range(10)]).then(app.mark.job(99)))

codes = [end(child(enqueue, point)) for point in sys.argv[1:]]
assert codes == [-signal.SIGKILL] * len(codes), codes
"""
    whole = {"job": 11, "edge": 10, "flow": 1}
    inside = ("after insert_flows", "after insert_jobs", "before insert_edges")
    started(processes, app, script, *inside, "after insert_edges").succeed(PATIENCE)
    # PostgreSQL may take a moment to notice that its client is gone.
    eventually(lambda: left(database) == dict.fromkeys(whole, 0))
    started(processes, app, script, "committed insert_edges").succeed(PATIENCE)
    assert left(database) == whole
    app.start_worker(processes)
    eventually(lambda: app.ol.counts()["succeeded"] == 11, PATIENCE)
    assert len(app.ledger.read("run")) == 11
