"""What remote workers say of their jobs: judged by the token, answered one by one."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import pytest

from outlast import Context, Job, Outlast, Retry, State, chain
from outlast.model.claim import Claim
from outlast.model.flow_builder import build_jobs
from outlast.ops.claim import ClaimRequest, claim
from outlast.ops.live_stats import losses
from outlast.service.dequeue import task_tokens
from tests.service.serving import Served, serving
from tests.service.streaming import QUICK, REPORTS, Streamed, opened, report, said, statuses
from tests.store.jobs import go_back
from tests.support import Database, eventually

KEY = b"k" * 32


@pytest.fixture
def served(ol: Outlast) -> Iterator[Served]:
    with serving(ol, QUICK) as running:
        yield running


@pytest.fixture
def token(served: Served) -> str:
    return served.token("work")


@pytest.fixture
def work(ol: Outlast) -> Any:
    @ol.task(retry=Retry(max_attempts=2, base=60.0, jitter=0.0))
    def work(ctx: Context) -> None: ...

    return work


@pytest.fixture
def stream(served: Served, token: str) -> Iterator[Streamed]:
    with opened(served, token) as stream:
        yield stream


def taken(served: Served, token: str, stream: Streamed) -> dict[str, Any]:
    """One job, accepted."""
    [job] = stream.offers(1)
    assert statuses(report(served, token, said(job, "renew"))) == ["ok"]
    return job


# Tokens


def a_claim(ol: Outlast) -> Claim:
    [taken] = ol.store.run(claim, ClaimRequest("w", "default", 1, 60.0))
    return taken


def test_a_token_with_any_letter_changed_is_none(ol: Outlast, work: Any) -> None:
    """R043: letter for letter, those too that decode to the same bytes."""
    work.enqueue()
    held = a_claim(ol)
    token = task_tokens.sign(held, KEY)
    read = task_tokens.read(token, KEY)
    assert read is not None
    assert (read.claim_key, read.queue, read.tenant) == (held.claim_key, held.queue, held.tenant)
    for place, letter in enumerate(token):
        for other in {"A", "B", "_", chr(ord(letter) ^ 1), "é"} - {letter}:
            assert task_tokens.read(token[:place] + other + token[place + 1 :], KEY) is None
    for strange in ("", ".", "..", "1.e30.", token + "=", token[:-1], f"1{token[1:]}"):
        assert task_tokens.read(strange, KEY) is None
    assert task_tokens.read(token, b"j" * 32) is None


def test_who_shows_another_token_changes_nothing(
    served: Served, ol: Outlast, work: Any, token: str, stream: Streamed
) -> None:
    """R043: a byte flipped, another's queue, another's tenant."""
    job = work.using(tenant="a", queue="q").enqueue()
    offer = taken(served, token, stream)
    before = ol.job(job.id)
    flipped = offer["token"][:40] + chr(ord(offer["token"][40]) ^ 1) + offer["token"][41:]
    forged = {**offer, "token": flipped}
    for verb in ("renew", "complete", "fail", "release", "event"):
        assert statuses(report(served, token, said(forged, verb))) == ["refused"]
        for limits in ({"queues": ["r"]}, {"tenant": "b"}):
            stranger = served.token("work", **limits)  # type: ignore[arg-type]
            assert statuses(report(served, stranger, said(offer, verb))) == ["refused"]
    now = ol.job(job.id)
    assert (now.state, now.fence, now.worker) == (before.state, before.fence, before.worker)
    assert ol.history(job.id) == ([], [])
    steps = {"token": flipped, "name": "s", "result": "1"}
    assert served.post("/api/v1/tasks/steps", token, json=steps).status_code == 403
    before_it = {"token": flipped}
    assert served.post("/api/v1/tasks/prerequisites", token, json=before_it).status_code == 403


# Outcomes


def test_what_was_finished_before_is_acknowledged_as_a_duplicate(
    served: Served, ol: Outlast, work: Any, token: str, stream: Streamed
) -> None:
    """R022: and counted; it is not run again."""
    job = work.enqueue()
    offer = taken(served, token, stream)
    assert statuses(report(served, token, said(offer, "complete", result="1"))) == ["ok"]
    before = served.app.service.dispatcher.counts["duplicate_delivery"]
    assert statuses(report(served, token, said(offer, "complete", result="2"))) == ["duplicate"]
    assert served.app.service.dispatcher.counts["duplicate_delivery"] == before + 1
    assert ol.job(job.id).result == 1
    assert statuses(report(served, token, said(offer, "renew"))) == ["lost"]
    assert statuses(report(served, token, said(offer, "fail"))) == ["lost"]


def test_of_two_remote_workers_with_one_fence_one_is_accepted(
    served: Served, ol: Outlast, database: Database, work: Any, token: str
) -> None:
    """R215: after a failover that lost the first claim, the job is offered again under its fence.
    The first worker is told that it lost whatever it reports, also in a call with the second."""
    job = work.enqueue()
    with opened(served, token, worker="old") as stream:
        first = taken(served, token, stream)
    eventually(lambda: not served.app.service.dispatcher.streams)
    go_back(database)
    with opened(served, token, worker="new") as stream:
        second = taken(served, token, stream)
    assert (second["id"], second["fence"]) == (first["id"], first["fence"])
    log = {"kind": "log", "data": '{"message": "from the past"}'}
    for verb, more in (("renew", {}), ("event", log), ("event", {**log, "late": True}),
                       ("fail", {}), ("release", {}), ("complete", {"result": "1"})):  # fmt: skip
        assert statuses(report(served, token, said(first, verb, **more))) == ["lost"], verb
    assert (ol.job(job.id).state, ol.history(job.id)) == (State.RUNNING, ([], []))
    steps = {"token": first["token"], "name": "s", "result": "1"}
    assert served.post("/api/v1/tasks/steps", token, json=steps).status_code == 409
    both = said(first, "complete", result="1"), said(second, "complete", result="2")
    assert statuses(report(served, token, *both)) == ["lost", "ok"]
    assert statuses(report(served, token, *both)) == ["lost", "duplicate"]
    now = ol.job(job.id)
    assert (now.result, str(now.worker).rpartition("-")[2]) == (2, "new")


def test_a_token_of_the_kind_before_names_its_worker_alone(ol: Outlast, work: Any) -> None:
    """R215: it does not say which server offered its job, and is read all the same."""
    work.enqueue()
    held = a_claim(ol)
    facts = json.dumps([getattr(held, name) for name in task_tokens._FIELDS_OF_KIND["1"]])
    text = f"1.{urlsafe_b64encode(facts.encode()).decode()}"
    read = task_tokens.read(f"{text}.{task_tokens._mac(text, KEY)}", KEY)
    assert read is not None
    assert (read.claim_key, read.offered_by) == (held.claim_key, None)


def test_a_claim_that_is_lost_changes_nothing(
    served: Served, ol: Outlast, work: Any, token: str, stream: Streamed
) -> None:
    """R013: the fence speaks, whatever the token says; and what was refused is on record."""
    job = work.enqueue()
    first = taken(served, token, stream)
    report(served, token, said(first, "release"))
    second = taken(served, token, stream)
    assert second["fence"] == first["fence"] + 1
    event = said(first, "event", kind="log", data='{"message": "from the past"}')
    answers = report(served, token, event, said(first, "complete"), said(first, "renew"))
    assert statuses(answers) == ["lost", "lost", "lost"]
    assert ol.job(job.id).state is State.RUNNING
    assert ol.history(job.id)[1] == []
    [refusal] = eventually(lambda: ol.store.run(losses, "write-refused"))
    assert (refusal.kind, refusal.data["job"]) == ("write-refused", job.id)
    steps = {"token": first["token"], "name": "s", "result": "1"}
    assert served.post("/api/v1/tasks/steps", token, json=steps).status_code == 409


@pytest.mark.parametrize(
    ("said_so", "state", "failures"),
    [
        ({"do": "fail", "error": {"type": "Boom", "message": "x"}}, "scheduled", 1),
        ({"do": "fail", "how": "timed-out"}, "scheduled", 1),
        ({"do": "fail", "how": "permanent"}, "dead", 1),
        ({"do": "fail", "how": "undecodable"}, "dead", 1),
        ({"do": "fail", "how": "later", "delay": 60}, "scheduled", 0),
        ({"do": "release", "delay": 60}, "scheduled", 0),
        ({"do": "complete", "result": "[1, 2]"}, "succeeded", 0),
    ],
)
@pytest.mark.kinds("sqlite")
def test_every_way_in_which_an_attempt_can_end(
    served: Served, ol: Outlast, work: Any, token: str, stream: Streamed,
    said_so: dict[str, Any], state: str, failures: int,
) -> None:  # fmt: skip
    """R041"""
    job = work.enqueue()
    offer = taken(served, token, stream)
    assert statuses(report(served, token, {"token": offer["token"], **said_so})) == ["ok"]
    ended = ol.job(job.id)
    assert (ended.state, ended.failures) == (state, failures)
    if state == "scheduled":
        wait = (ended.run_at - ended.created_at).total_seconds()
        assert 55 < wait < 90  # the task's own policy, or what was asked for


def test_a_failure_follows_the_policy_that_its_worker_knows(
    served: Served, ol: Outlast, token: str, stream: Streamed
) -> None:
    """R044: the server need not know the task; a job's own policy comes first."""
    with Outlast(str(ol.store.address.url), schema=ol.store.address.schema) as elsewhere:

        @elsewhere.task
        def work() -> None: ...

        plain = work.enqueue()
        own = work.using(retry=Retry(base=500.0, cap=500.0, jitter=0.0)).enqueue()
    policy = {"max_attempts": 5, "base": 100.0, "cap": 100.0, "jitter": 0.0}
    offers = stream.offers(2)
    report(served, token, *[said(offer, "fail", retry=policy) for offer in offers])
    for job, delay in ((plain, 100), (own, 500)):
        ended = ol.job(job.id)
        assert delay - 5 < (ended.run_at - ended.created_at).total_seconds() < delay + 30


def test_one_bad_report_concerns_itself_alone(
    served: Served, ol: Outlast, work: Any, token: str, stream: Streamed
) -> None:
    """R041"""
    good, bad = ol.enqueue(work.job(), work.job())
    offers = {offer["id"]: offer for offer in stream.offers(2)}
    answers = report(
        served, token,
        said(offers[bad.id], "complete", result="no JSON"),
        said(offers[good.id], "complete", result="1"),
    )  # fmt: skip
    assert statuses(answers) == ["refused", "ok"]
    assert "JSON" in answers[0]["reason"]


# Events


def test_events_are_kept_once_and_before_the_outcome(
    served: Served, ol: Outlast, work: Any, token: str, stream: Streamed
) -> None:
    """R139, R143"""
    job = work.enqueue()
    offer = taken(served, token, stream)
    events = [said(offer, "event", n=n, data=json.dumps({"message": n})) for n in range(3)]
    report(served, token, *events)
    report(served, token, *events, said(offer, "complete"))
    assert [event.data["message"] for event in ol.history(job.id)[1]] == [0, 1, 2]


def test_an_event_under_a_lost_claim_is_answered_as_lost(
    served: Served, ol: Outlast, work: Any, token: str, stream: Streamed
) -> None:
    """R049, R139: it is not kept, and whoever said it is told so; what was kept before stands, and
    one that comes with the last outcome is kept too."""
    job = work.enqueue()
    first = taken(served, token, stream)
    before, after = said(first, "event", n=0), said(first, "event", n=1)
    assert statuses(report(served, token, before)) == ["ok"]
    report(served, token, said(first, "release"))
    second = taken(served, token, stream)
    last = said(second, "event", n=0)
    answers = report(served, token, after, before, last, said(second, "complete"))
    assert statuses(answers) == ["lost", "ok", "ok", "ok"]
    assert len(ol.history(job.id)[1]) == 2


@pytest.mark.kinds("sqlite")
def test_an_event_that_cannot_be_stored_is_refused(
    served: Served, ol: Outlast, work: Any, token: str, stream: Streamed, database: Database
) -> None:
    """R141: alone, and with a reason; its claim is not lost for that."""
    job = work.enqueue()
    offer = taken(served, token, stream)
    with database.connect() as connection:
        connection.execute(
            "CREATE TRIGGER refuse BEFORE INSERT ON outlast_event WHEN NEW.n = 0"
            " BEGIN SELECT RAISE(ABORT, 'not this one'); END"
        )
    answers = report(served, token, *(said(offer, "event", n=n, data=str(n)) for n in range(2)))
    assert statuses(answers) == ["refused", "ok"] and "not this one" in answers[0]["reason"]
    assert [event.data for event in ol.history(job.id)[1]] == [1]


def test_what_a_dead_worker_had_said_is_kept_under_its_own_claim(
    served: Served, ol: Outlast, work: Any, token: str, stream: Streamed
) -> None:
    """R139"""
    job = work.enqueue()
    first = taken(served, token, stream)
    report(served, token, said(first, "release"))
    report(served, token, said(taken(served, token, stream), "complete"))
    late = said(first, "event", n=0, data='{"message": "late"}', late=True)
    for _ in range(2):
        assert statuses(report(served, token, late)) == ["ok"]
    [event] = ol.history(job.id)[1]
    assert (event.attempt, event.data) == (1, {"message": "late"})


def test_what_is_too_large_is_refused_with_a_reason(
    served: Served, work: Any, token: str, stream: Streamed
) -> None:
    """R141"""
    work.enqueue()
    offer = taken(served, token, stream)
    long = said(offer, "event", data=json.dumps("x" * 201_000))
    answer = served.post(REPORTS, token, json={"reports": [long]})
    assert answer.status_code == 422
    assert "reports.0.data" in answer.text
    many = {"reports": [said(offer, "renew")] * 1001}
    assert served.post(REPORTS, token, json=many).status_code == 422


# Follow-ups


def follow_ups(ol: Outlast, job: Job, **options: Any) -> list[dict[str, Any]]:
    @ol.task(name="next")
    def next() -> None: ...

    call = next.using(tenant=job.tenant, queue=job.queue).using(**options).job()
    return [asdict(new) for new in build_jobs([call])]


def test_follow_ups_exist_if_and_only_if_the_attempt_is_accepted(
    served: Served, ol: Outlast, work: Any, token: str, stream: Streamed
) -> None:
    """R100"""
    job = work.enqueue()
    offer = taken(served, token, stream)
    jobs = follow_ups(ol, job)
    done = said(offer, "complete", jobs=jobs)
    assert statuses(report(served, token, done)) == ["ok"]
    assert statuses(report(served, token, done)) == ["duplicate"]
    assert len(ol.jobs(task="next")) == 1


@pytest.mark.kinds("sqlite")
def test_follow_ups_reach_no_further_than_their_maker(
    served: Served, ol: Outlast, work: Any
) -> None:
    """R145: not another's tenant, queue, lane, flow or job."""
    ol.queue("q", lane="tenant")
    other, job = ol.enqueue(work.using(queue="r").job(), work.using(queue="q", tenant="a").job())
    limited = served.token("work", tenant="a", queues=["q"])
    with opened(served, limited, worker="limited") as mine:
        offer = taken(served, limited, mine)
        good = follow_ups(ol, job)
        row = {name: value for name, value in good[0].items() if value}
        for wrong in (
            {"tenant": "b"},
            {"queue": "r"},
            {"lane": "b"},
            {"lane": "a\nb"},
            {"flow": other.id},
            {"sibling_of": other.id},
            {"after": [other.id]},
            {"id": "no id"},
            {"args": "no JSON"},
            {"team": other.id},
            {"hooks": hooked({**row, "tenant": "b"})},
            {"hooks": hooked({**row, "queue": "r"})},
            {"hooks": hooked({**row, "lane": "b"})},
            {"hooks": hooked({**row, "hooks": hooked({**row, "lane": "b"})})},
            {"hooks": hooked({**row, "flow": other.id})},
            {"hooks": hooked({**row, "team": other.id})},
            {"hooks": hooked({**row, "hooks": hooked({**row, "tenant": "b"})})},
            {"hooks": hooked({"task": "next"})},
            {"hooks": '{"succeeded": "nothing"}'},
        ):
            jobs = [{**good[0], **wrong}]
            answers = report(served, limited, said(offer, "complete", jobs=jobs))
            assert statuses(answers) == ["refused"], wrong
        assert ol.job(job.id).state is State.RUNNING
        assert ol.jobs(task="next") == []


def test_a_flow_that_follow_ups_begin_has_a_name_that_can_be_stored(
    served: Served, ol: Outlast, work: Any, token: str, stream: Streamed
) -> None:
    """R006: the outcome is refused by name, and not by the database; a good one is taken."""

    @ol.task(name="next")
    def next() -> None: ...

    job = work.enqueue()
    offer = taken(served, token, stream)
    jobs = [asdict(new) for new in build_jobs([chain(next.job(), next.job())])]
    [flow] = jobs[0]["new_flows"]
    for name, status in (("a\0b", "refused"), ("x" * 201, "refused"), ("a b", "ok")):
        flow["name"] = name
        [answer] = report(served, token, said(offer, "complete", jobs=jobs))
        assert answer["status"] == status, name
        assert status == "ok" or "name" in answer["reason"]
    assert ol.job(job.id).state is State.SUCCEEDED


def hooked(hook: dict[str, Any]) -> str:
    return json.dumps({"succeeded": [hook]})


def test_the_ids_that_follow_ups_bring_tell_nothing_of_other_jobs(
    served: Served, ol: Outlast, work: Any
) -> None:
    """R145: under the id of somebody else's job, or of their flow, it is as under one that is
    nobody's; what they bring is tied to each other all the same, in the order given."""
    other = ol.enqueue(chain(work.using(queue="r").job(), work.using(queue="r").job()))
    limited = served.token("work", tenant="a", queues=["q"])

    @ol.task(name="next", queue="q", tenant="a")
    def next(n: int) -> None: ...

    with opened(served, limited, worker="limited") as mine:
        for hidden in (None, other):
            job = work.using(queue="q", tenant="a").enqueue()
            offer, before = taken(served, limited, mine), {one.id for one in ol.jobs(task="next")}
            jobs = [asdict(new) for new in build_jobs([chain(next.job(n=1), next.job(n=2))])]
            if hidden is not None:
                said_of_them = json.dumps(jobs).replace(jobs[0]["id"], hidden[0].id)
                jobs = json.loads(said_of_them.replace(jobs[0]["flow"], hidden[0].flow or ""))
            answers = report(served, limited, said(offer, "complete", jobs=jobs))
            assert statuses(answers) == ["ok"]
            assert ol.job(job.id).state is State.SUCCEEDED
            made = [one for one in ol.jobs(task="next") if one.id not in before]
            first, second = sorted(made, key=lambda one: one.id)
            assert (first.args, second.args) == ({"n": 1}, {"n": 2})
            assert second.waits_for == 1 and first.flow == second.flow not in (None, other[0].flow)
    assert [one.state for one in ol.flow_jobs(other[0].flow or "")] == ["ready", "waiting"]


@pytest.mark.parametrize("n", [10**18 - 1, 2**63 - 1])
def test_a_row_of_output_whose_number_no_reader_could_name_is_refused(
    served: Served, token: str, stream: Streamed, work: Any, ol: Outlast, n: int
) -> None:
    """R248: alone; what was reported with it is stored, and can be read."""
    work.enqueue()
    job = taken(served, token, stream)
    event = {"kind": "stream", "data": '["x"]'}
    highest, beyond = said(job, "event", n=10**18 - 2, **event), said(job, "event", n=n, **event)
    answers = report(served, token, beyond, highest, said(job, "complete", result="1"))
    assert statuses(answers) == ["refused", "ok", "ok"]
    assert [chunk.data for chunk in ol.stream(job["id"])] == [None, "x"]
