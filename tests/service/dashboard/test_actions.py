"""Every action asks once, is on record, and says what it did."""

from __future__ import annotations

import time

import pytest

from outlast import chain
from outlast.model.breaker import Circuit, OpenBreaker
from outlast.model.humanize import compact_duration, duration_seconds
from outlast.ops import workers as worker_ops
from outlast.ops.breaker_report import breakers
from outlast.ops.breakers import open_breaker
from outlast.ops.report import paused, queue_settings
from tests.service.dashboard.looking import Browser
from tests.service.serving import Served
from tests.store.flowing import call, lay
from tests.store.jobs import end, put, put_and_take, table, take
from tests.support import Database, eventually


def recorded(database: Database, kind: str) -> list[str]:
    return [
        str(data)
        for (data,) in database.rows(
            f"SELECT data FROM {table(database, 'event')} WHERE kind = '{kind}'"
        )
    ]


def test_a_queue_is_paused_and_resumed_by_people(
    served: Served, browser: Browser, database: Database
) -> None:
    """It is asked first, and nothing happens by looking; then who did it is on record."""
    put(served.ol.store.run, 3, queue="mail")
    browser.log_in(served.token("admin", name="ada"))
    question = browser.go(browser.go("/queues").links["Pause"])
    assert "Pause the queue mail?" in question.text
    assert served.ol.store.run(paused) == {}, "asking does nothing"
    told = browser.send(question.form_to("/queues/pause"))
    assert "The queue mail is paused" in told.text
    assert served.ol.store.run(paused) == {"mail": True}
    assert "is paused:" not in browser.go("/queues").text, "told once"
    (record,) = recorded(database, "pause")
    assert "token ada" in record and "mail" in record
    question = browser.go(browser.go("/queues").links["Resume"])
    resumed = browser.send(question.form_to("/queues/resume"))
    assert "is resumed" in resumed.text and served.ol.store.run(paused) == {"mail": False}


def test_the_lanes_of_a_limited_queue_are_shown(served: Served, browser: Browser) -> None:
    served.ol.limit("mail", running=9, lane_running=2)
    put(served.ol.store.run, 3, queue="mail", lane="<acme>")
    browser.log_in(served.token("admin", name="ada"))
    page = browser.go("/queues")
    assert "0 of 9 running, 2 of a lane" in page.text
    lanes = browser.go("/queues/lanes?queue=mail")
    assert "<acme>" in lanes.text and "0 / 2" in lanes.text


def test_an_open_breaker_is_shown_and_closed_by_people(
    served: Served, browser: Browser, database: Database
) -> None:
    """R223: on the overview and the page of queues; closed after a question, on record."""
    run = served.ol.store.run
    put(run, 3, queue="mail")
    down = OpenBreaker(Circuit("mail", "work"), "first", "ConnectionError")
    run(open_breaker, down, "refused <b>", "w1", 60.0)
    arrived = served.ol.worker().registration_row() | {"id": "somebody"}
    run(worker_ops.register, arrived)  # else the queue is stuck for another reason
    browser.log_in(served.token("admin", name="ada"))
    overview = browser.go("/").text
    assert "breaker open mail : work (ConnectionError" in overview
    assert "1 circuit breaker is open." in overview
    assert "Nothing is" not in overview, "whatever the audit says"
    page = browser.go("/queues")
    assert "mail breaker open breaker of work" in page.text and "working" not in page.text
    assert "after the breaker closes" in page.text
    assert "breaker of work open for" in page.text
    assert "ConnectionError: refused <b>; next probe in" in page.text
    question = browser.go(page.links["Close breaker"])
    assert len(run(breakers)) == 1, "asking does nothing"
    told = browser.send(question.form_to("/queues/close-breaker"))
    assert "1 breaker of the queue mail closed." in told.text and run(breakers) == []
    (record,) = recorded(database, "breaker-closed")
    assert "token ada" in record


def test_a_running_job_is_taken_from_its_worker_by_people(
    served: Served, browser: Browser, database: Database
) -> None:
    """R200: asked first; put back unspent, on record with who did it; a second time is told."""
    claim = put_and_take(served.ol.store.run)
    browser.log_in(served.token("admin", name="ada"))
    page = browser.go(f"/jobs/{claim.id}")
    assert "Forget…" not in page.links, "it has not ended"
    question = browser.go(page.links["Reclaim…"])
    assert served.ol.job(claim.id).state == "running", "asking does nothing"
    form = question.form_to(f"/jobs/{claim.id}/reclaim")
    assert "The job was reclaimed from w1: it is ready." in browser.send(form).text
    (record,) = recorded(database, "reclaim")
    assert "token ada" in record and "w1" in record
    job = served.ol.job(claim.id)
    assert (job.state, job.failures, job.crashes) == ("ready", 0, 0)
    assert "No change: the job is ready." in browser.send(form).text
    assert len(recorded(database, "reclaim")) == 1


def test_what_an_ended_job_held_is_forgotten_by_people(
    served: Served, browser: Browser, database: Database
) -> None:
    """R200"""
    claim = put_and_take(served.ol.store.run, args='{"iban": "DE89"}')
    browser.log_in(served.token("admin", name="ada"))
    forged = {"to": f"/jobs/{claim.id}/forget", "fields": {}}
    assert "No change" in browser.send(forged).text, "it has not ended"
    end(served.ol.store.run, claim, "permanent", error={"type": "E", "message": "DE89 is wrong"})
    page = browser.go(f"/jobs/{claim.id}")
    assert "DE89" in page.text and "Reclaim…" not in page.links
    question = browser.go(page.links["Forget…"])
    told = browser.send(question.form_to(f"/jobs/{claim.id}/forget"))
    assert "is erased; its times and state stay" in told.text
    assert "DE89" not in told.text and served.ol.job(claim.id).state == "dead"
    (record,) = recorded(database, "forget")
    assert "token ada" in record


def test_a_worker_is_drained_and_undrained_by_people(
    served: Served, browser: Browser, database: Database
) -> None:
    """R200: one that is remote is stopped where it runs, and one that is gone is told of."""
    run = served.ol.store.run
    for id in ("w1", "remote-a-b"):
        run(worker_ops.register, served.ol.worker().registration_row() | {"id": id})
    browser.log_in(served.token("admin", name="ada"))
    page = browser.go("/workers")
    assert "stop it on its host" in page.text and page.text.count("Drain…") == 1
    question = browser.go(page.links["Drain…"])
    told = browser.send(question.form_to("/workers/drain"))
    assert "w1 is draining" in told.text and told.text.count("draining") > 1
    question = browser.go(browser.go("/workers").links["Undrain…"])
    told = browser.send(question.form_to("/workers/undrain"))
    assert "w1 claims again" in told.text and "draining" not in told.text
    for kind in ("drain", "undrain"):
        (record,) = recorded(database, kind)
        assert "token ada" in record and "w1" in record
    gone = {"to": "/workers/drain", "fields": {"worker": "nobody"}}
    assert "No change" in browser.send(gone).text


def test_the_dead_are_removed_by_people_and_what_a_flow_needs_stays(
    served: Served, browser: Browser, database: Database
) -> None:
    """R200: counted first, by what they died of; on record with who wanted it and which."""
    run = served.ol.store.run
    for kind in ("Boom", "Boom", "Bang"):
        claim = put_and_take(run, task="charge", args='{"order": 7}')
        end(run, claim, "permanent", error={"type": kind, "message": kind})
    browser.log_in(served.token("admin", name="ada"))
    page = browser.go("/dead")
    question = browser.go(page.links["Purge…"])
    assert "Purge 2 jobs?" in question.text and "permanently" in question.text
    assert len(served.ol.jobs(state="dead")) == 3, "asking does nothing"
    assert "Removed 2 jobs." in browser.send(question.form_to("/jobs/purge")).text
    assert [job.error["type"] for job in served.ol.jobs(state="dead") if job.error] == ["Bang"]
    (record,) = recorded(database, "purge")
    assert "token ada" in record and "Boom" in record


@pytest.mark.parametrize("action", ["purge", "redrive"])
def test_what_changed_since_the_question_is_named(
    served: Served, browser: Browser, action: str
) -> None:
    """R231: the number that was asked about, and why not all of them."""
    run = served.ol.store.run
    claims = [put_and_take(run) for _ in range(3)]
    for claim in claims:
        end(run, claim, "permanent")
    question = browser.go(f"/jobs/{action}?state=dead").form_to(f"/jobs/{action}")
    served.ol.retry(claims[0].id)
    told = browser.send(question).text
    did = "Removed" if action == "purge" else "Redrove"
    assert f"{did} 2 jobs. 1 no longer matched when their turn came." in told


def test_what_a_flow_needs_is_not_removed_and_a_state_is_named(
    served: Served, browser: Browser
) -> None:
    """R200: nobody removes all that has ended, in whatever way, by one press."""
    run = served.ol.store.run
    first, _second = lay(run, chain(call(), call()))
    end(run, *take(run, queue=first.queue))
    page = browser.go("/jobs?state=succeeded")
    form = browser.go(page.links["Purge all matching…"]).form_to("/jobs/purge")
    told = browser.send(form).text
    assert "Removed 0 jobs. 1 job matched. Left alone: 1 needed by a flow." in told
    assert "Purge all matching…" not in browser.go("/jobs").links
    assert "choose one of these states" in browser.go("/jobs/purge").text
    dead = put_and_take(run, queue="other")
    end(run, dead, "permanent")
    forged = {"to": "/jobs/purge", "fields": {}}
    assert "Removed 0 jobs." in browser.send(forged).text
    assert served.ol.job(dead.id).state == "dead", "nobody named its state"


def bulk(browser: Browser, action: str, filter: str, **fields: str) -> str:
    """What a bulk change says: from the page of jobs, by its question, to what it did."""
    page = browser.go(f"/jobs?{filter}")
    question = browser.go(page.links[f"{action.capitalize()} all matching…"])
    return browser.send(question.form_to(f"/jobs/{action}"), **fields).text


def test_matching_jobs_are_rescheduled_prioritized_and_moved_by_people(
    served: Served, browser: Browser, database: Database
) -> None:
    """R200, R231: counted first; looking does nothing; on record with who did it; jobs that do not
    match stay as they are."""
    ol = served.ol
    ol.limit("mail", lane_running=1)
    ids = [job.id for job in put(ol.store.run, 3, queue="mail")]
    (other,) = put(ol.store.run, queue="other", priority=1)
    browser.log_in(served.token("admin", name="ada"))
    found = "queue=mail&state=ready"
    question = browser.go(browser.go(f"/jobs?{found}").links["Prioritize all matching…"])
    assert "Prioritize 3 jobs?" in question.text
    assert {job.priority for job in ol.jobs(queue="mail")} == {0}, "asking does nothing"
    assert "Prioritized 3 jobs." in bulk(browser, "prioritize", found, priority="7")
    assert {job.priority for job in ol.jobs(queue="mail")} == {7}
    assert "Moved 3 jobs." in bulk(browser, "move", found, lane="acme")
    assert {job.lane for job in ol.jobs(queue="mail")} == {"acme"}
    assert "Rescheduled 3 jobs." in bulk(browser, "reschedule", found, when="2h")
    later = {job.run_at for job in ol.jobs(queue="mail", state="scheduled")}
    assert len(later) == 1, "one moment for all of them"
    assert 7000 < later.pop().timestamp() - time.time() < 7300
    found = "queue=mail&state=scheduled"
    assert "Rescheduled 3" in bulk(browser, "reschedule", found, when="2030-01-31T12:00:00+01:00")
    assert {job.run_at.isoformat() for job in ol.jobs(queue="mail")} == {
        "2030-01-31T11:00:00+00:00"
    }
    assert "Moved 3 jobs." in bulk(browser, "move", "queue=mail", to="bulk")
    assert {job.id for job in ol.jobs(queue="bulk")} == set(ids)
    assert ol.job(other.id) == other
    for kind, number in (("prioritize", 3), ("move", 6), ("reschedule", 6)):
        told = recorded(database, kind)
        assert len(told) == number and all("token ada" in one for one in told)


@pytest.mark.kinds("sqlite")
@pytest.mark.parametrize(
    ("action", "fields", "why"),
    [
        ("reschedule", {"when": ""}, "must be a span such as 30m"),
        ("reschedule", {"when": "soon"}, "must be a span such as 30m"),
        ("reschedule", {"when": "2030-01-31T12:00:00"}, "must be a span such as 30m"),
        ("reschedule", {"when": "9999999d"}, "to ten years"),
        ("prioritize", {"priority": ""}, "must be a whole number"),
        ("prioritize", {"priority": "101"}, "from -100 to 100"),
        ("move", {}, "must be the name of a queue"),
        ("move", {"to": "a", "lane": "b"}, "and not both"),
        ("move", {"to": "mail"}, "must name the queue that the jobs leave"),
        ("move", {"to": "!a"}, "must not start with"),
        ("move", {"lane": "x" * 201}, "1 to 200 characters"),
    ],
    ids=str,
)
def test_a_bulk_change_that_cannot_be_says_why_and_does_nothing(
    served: Served, browser: Browser, action: str, fields: dict[str, str], why: str
) -> None:
    before = put(served.ol.store.run, 2, queue="mail")
    told = bulk(browser, action, "queue=mail&state=ready", **fields)
    assert "No change." in told and why in told
    assert [served.ol.job(job.id) for job in before] == before


def test_a_bulk_change_needs_the_filter_that_makes_it_clear(
    served: Served, browser: Browser
) -> None:
    """R200: a move needs a queue, another moment a state; a forged form changes nothing else."""
    (job,) = put(served.ol.store.run, queue="mail")
    links = browser.go("/jobs").links
    assert "Prioritize all matching…" in links
    assert not {"Move all matching…", "Reschedule all matching…"} & links.keys()
    assert "choose a queue" in browser.go("/jobs/move").text
    assert "choose one of these states" in browser.go("/jobs/reschedule").text
    forged = {"to": "/jobs/reschedule", "fields": {"when": "1h"}}
    assert "Rescheduled 0 jobs." in browser.send(forged).text
    forged = {"to": "/jobs/move", "fields": {"to": "bulk"}}
    assert "must name the queue" in browser.send(forged).text
    assert served.ol.job(job.id) == job


def test_a_bulk_change_reaches_as_far_as_its_token(served: Served, browser: Browser) -> None:
    """R145: neither another tenant's jobs, nor a queue or a lane that is not its to fill."""
    ol = served.ol
    ol.queue("fair", lane="tenant")
    ol._declare_queues()
    mine, theirs = (put(ol.store.run, queue="fair", tenant=name)[0] for name in ("acme", "other"))
    browser.log_in(served.token("admin", tenant="acme", queues=["fair"]))
    assert "Prioritized 1 job." in bulk(browser, "prioritize", "queue=fair", priority="9")
    question = browser.go("/jobs/move?queue=fair").form_to("/jobs/move")
    assert "omit the lane" in browser.send(question, 403, lane="other").text
    assert "no access to the queue" in browser.send(question, 403, to="bulk").text
    assert (ol.job(mine.id).priority, ol.job(mine.id).lane) == (9, "acme")
    assert ol.job(theirs.id) == theirs


def test_how_long_a_queue_keeps_what_has_ended_is_set_by_people(
    served: Served, browser: Browser, database: Database
) -> None:
    """R200: what is set is shown, in the list and in the question; what is no span is refused."""
    put(served.ol.store.run, queue="mail")
    browser.log_in(served.token("admin", name="ada"))
    page = browser.go("/queues")
    assert "ended jobs kept" not in page.text
    form = browser.go(page.links["Keep…"]).form_to("/queues/keep")
    assert form["fields"]["keep"] == ""
    assert "keeps ended jobs for 1 h 30 min at most" in browser.send(form, keep="1.5h").text
    assert served.ol.store.run(queue_settings)["mail"].keep == 5400.0
    page = browser.go("/queues")
    assert "ended jobs kept for 1 h 30 min" in page.text
    assert browser.go(page.links["Keep…"]).form_to("/queues/keep")["fields"]["keep"] == "90m"
    for wrong in ("soon", "-1", "9" * 14 + "d"):
        assert "is not a duration" in browser.send(form, keep=wrong).text
    assert served.ol.store.run(queue_settings)["mail"].keep == 5400.0
    assert "as long as all others" in browser.send(form, keep=" ").text
    assert served.ol.store.run(queue_settings)["mail"].keep is None
    assert len(recorded(database, "keep")) == 2 and "token ada" in recorded(database, "keep")[0]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (90, "90s"), (5400, "90m"), (86400.0, "1d"), (0.5, "0.5s")]
)
def test_a_span_is_typed_as_it_is_read(seconds: float, text: str) -> None:
    assert compact_duration(seconds) == text and duration_seconds(text) == seconds


def test_of_many_queues_some_are_shown(served: Served, browser: Browser) -> None:
    """R166: by name or by what is in them, a hundred at a time; and by a part of the name."""
    run = served.ol.store.run
    for number in range(105):
        put(run, 2 if number == 104 else 1, queue=f"queue-{number:03}")
    eventually(lambda: "1 to 100 of 105" in browser.go("/queues").text, timeout=10)
    page = browser.go("/queues")
    assert "queue-000" in page.links and "queue-104" not in page.links
    assert "queue-104" in browser.go(page.links["Next"]).links
    most = browser.go(page.links["Ready"])
    assert "queue-104" in most.links and "queue-103" not in most.links
    found = browser.go("/queues?text=104")
    assert "queue-104" in found.links and "queue-000" not in found.links
    assert "No matching queues" in browser.go("/queues?text=nothing").text


@pytest.mark.kinds("sqlite")
def test_who_may_look_is_shown_no_action(served: Served, browser: Browser) -> None:
    """R145: nor is one who is kept to some queues shown those that concern all of them."""
    run = served.ol.store.run
    run(worker_ops.register, served.ol.worker().registration_row() | {"id": "w1"})
    running, ended = put_and_take(run), put_and_take(run)
    end(run, ended, "permanent")
    paths = ("/jobs?state=dead", "/dead", "/queues", "/workers", f"/jobs/{running.id}",
             f"/jobs/{ended.id}")  # fmt: skip
    browser.log_in(served.token("read"))
    for path in paths:
        for word in ("Reclaim", "Forget", "Drain", "Purge", "Keep…", "Prioritize all matching…"):
            assert word not in browser.go(path).links, path
    for path in ("/workers/drain?worker=w1", "/queues/keep?queue=a", "/jobs/purge?state=dead",
                 "/jobs/move?queue=a", "/jobs/prioritize", "/jobs/reschedule?state=ready",
                 f"/jobs/{running.id}/reclaim", f"/jobs/{ended.id}/forget"):  # fmt: skip
        assert "lacks the scope" in browser.go(path, 403).text
    some = served.token("admin", queues=["default"])
    text = served.get("/workers", some).text
    assert "w1" in text and "Drain…" not in text


@pytest.mark.kinds("sqlite")
@pytest.mark.parametrize("origin", [None, "http://evil.example", "null"])
def test_another_site_s_form_does_nothing(
    served: Served, browser: Browser, origin: str | None
) -> None:
    browser.log_in(served.token("admin"))
    headers = {} if origin is None else {"origin": origin}
    answer = browser.http.post("/queues/pause", data={"queue": "mail"}, headers=headers)
    assert answer.status_code == 403 and served.ol.store.run(paused) == {}


@pytest.mark.kinds("sqlite")
def test_a_form_is_small_and_a_form(served: Served) -> None:
    token = served.token("admin")
    assert served.post("/queues/pause", token, json={"queue": "a"}).status_code == 415
    assert served.post("/queues/pause", token, data={"queue": "a" * 200_000}).status_code == 413
    assert served.post("/queues/pause", token, data={"queue": ""}).status_code == 422


@pytest.mark.kinds("sqlite")
def test_nobody_puts_words_on_a_page_by_a_cookie(served: Served, browser: Browser) -> None:
    """What an action did travels signed."""
    forged = "WyJkb25lIiwgIllvdSBvd2UgdXMiXQ==." + "0" * 64
    browser.http.cookies.set("outlast_flash", forged)
    assert "You owe us" not in browser.go("/queues").text
