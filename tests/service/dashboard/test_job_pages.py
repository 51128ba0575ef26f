"""The pages of jobs, flows, the dead, the schedule and tokens, as a browser asks for them."""

from __future__ import annotations

import re
from html import unescape
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx
import pytest

from outlast import Outlast, chain
from outlast.model.settings import RetentionSettings
from outlast.ops import workers as worker_ops
from outlast.ops.events import assign_positions
from outlast.service.dashboard import bulk
from tests.service.following import claimed, say
from tests.service.serving import Served, serving
from tests.store.jobs import end, put, put_and_take, set_all, table
from tests.support import Database, eventually

pytestmark = pytest.mark.kinds("sqlite")

FORM = {"content-type": "application/x-www-form-urlencoded"}


def links(text: str, start: str = "/") -> list[str]:
    return re.findall(rf'href="({re.escape(start)}[^"#]*)', text)


def fields(text: str) -> dict[str, str]:
    """What the form that goes on would send."""
    form = text.partition("data-go-on>")[2].partition("</form>")[0]
    return dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', form))


def dead(served: Served, kind: str, **said: Any) -> str:
    claim = put_and_take(served.ol.store.run, **said)
    error = {"type": kind, "message": f"it was a {kind}", "traceback": "line 1"}
    end(served.ol.store.run, claim, "permanent", error=error)
    return claim.id


def test_pages_of_jobs_go_on_until_all_were_seen(served: Served) -> None:
    """R166: by a cursor in the address; each job once, newest first; the filter is kept."""
    jobs = [job.id for job in put(served.ol.store.run, 120, queue="many")]
    put(served.ol.store.run, 5, queue="others")
    seen: list[str] = []
    path: str | None = "/jobs?queue=many"
    while path is not None:
        text = served.get(path).text
        seen += re.findall(r'href="/jobs/([0-9a-f-]{36})"', text)
        path = next((one.replace("&amp;", "&") for one in links(text) if "cursor=" in one), None)
        if path is not None:
            assert dict(parse_qsl(urlsplit(path).query))["queue"] == "many"
    assert seen == sorted(jobs, reverse=True)


def test_a_whole_id_leads_to_its_job(served: Served) -> None:
    (job,) = put(served.ol.store.run, tenant="a")
    answer = served.get(f"/jobs?text={job.id.upper()}")
    assert answer.status_code == 303 and answer.headers["location"] == f"/jobs/{job.id}"
    stranger = served.token("read", tenant="b")
    assert served.get(f"/jobs?text={job.id}", stranger).status_code == 200, "it is not there"


def test_a_tenant_is_chosen_by_those_who_see_all_and_by_nobody_else(served: Served) -> None:
    """R145: a filter never shows more than the token does."""
    put(served.ol.store.run, tenant="a", task="task-of-a")
    put(served.ol.store.run, tenant="b", task="task-of-b")
    everyone, of_a = served.token("read"), served.token("read", tenant="a")
    assert "task-of-b</th>" not in served.get("/jobs?tenant=a", everyone).text
    for path in ("/jobs", "/jobs?tenant=b"):
        text = served.get(path, of_a).text
        assert "task-of-a" in text and "task-of-b" not in text and ">Tenant<" not in text


def test_many_are_done_in_small_steps_and_told_of(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R166: each step says how far it came; what is left travels in its form. Other jobs stand."""
    monkeypatch.setattr(bulk, "STEP_BUDGET_S", 0.0)  # as if each batch took a second
    put(served.ol.store.run, 250, queue="many")
    put(served.ol.store.run, 3, queue="others")
    asked = {"queue": "many", "reason": "enough", "number": "250"}
    answer, told = served.post("/jobs/cancel", data=asked), []
    while answer.status_code == 200:
        told.append(re.findall(r"<h1>(Cancelled \d+ jobs so far)</h1>", answer.text)[0])
        answer = served.post("/jobs/cancel", data=fields(answer.text))
    assert told == ["Cancelled 100 jobs so far", "Cancelled 200 jobs so far"]
    assert answer.status_code == 303 and "queue=many" in answer.headers["location"]
    served.http.cookies.update(answer.cookies)
    assert "Cancelled 250 jobs." in served.get(answer.headers["location"]).text
    assert {j.state for j in served.ol.jobs(queue="many", limit=300)} == {"cancelled"}
    assert {j.state for j in served.ol.jobs(queue="others")} == {"ready"}
    one = served.ol.jobs(queue="many", limit=1)[0]
    assert one.error is not None and one.error["message"] == "enough"


def test_what_is_counted_is_what_can_be_acted_on(served: Served) -> None:
    """R166: by state, text and error, before anything is done."""
    ids = [dead(served, "Boom", queue="a", key=f"order-{n}") for n in range(3)]
    dead(served, "Bang", queue="a")
    put(served.ol.store.run, 2, queue="a", task="live")
    for path, wanted in (
        ("/jobs/redrive?error=Boom", "Redrive 3 jobs?"),
        ("/jobs/redrive?text=order-1", "Redrive 1 job?"),
        ("/jobs/redrive?task=live", "No jobs to redrive"),
        ("/jobs/cancel?task=live&queue=a", "Cancel 2 jobs?"),
        ("/jobs/cancel?state=dead", "No jobs to cancel"),
    ):
        eventually(lambda p=path, w=wanted: w in served.get(p).text, timeout=10)
    answer = served.post("/jobs/redrive", data={"error": "Boom"})
    assert answer.status_code == 303
    assert {served.ol.job(id).state for id in ids} == {"ready"}
    assert served.ol.counts()["dead"] == 1


def test_who_goes_on_while_all_are_cancelled_is_met_later(
    served: Served, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R200: states are gone through in the order in which a job comes by them."""
    monkeypatch.setattr(bulk, "STEP_BUDGET_S", 0.0)  # as if each batch took a second
    put(served.ol.store.run, 120, queue="many", delay=3600.0)
    answer = served.post("/jobs/cancel", data={"queue": "many"})
    set_all(database, "state = 'ready', run_at = created_at", "state = 'scheduled'")  # due
    while answer.status_code != 303:
        answer = served.post("/jobs/cancel", data=fields(answer.text))
    assert served.ol.counts()["cancelled"] == 120


def test_who_may_not_change_is_shown_no_way_to(served: Served) -> None:
    """R145: and the forms refuse whoever makes the request by hand."""
    id = dead(served, "Boom")
    reader = served.token("read")
    for path in ("/jobs", "/dead", f"/jobs/{id}"):
        assert not re.search(r'href="[^"]*/(redrive|cancel)', served.get(path, reader).text), path
    assert served.post("/jobs/redrive", reader, data={"state": "dead"}).status_code == 403
    assert served.ol.counts()["dead"] == 1


def test_another_site_s_form_does_nothing(served: Served) -> None:
    """R143: the pages' forms ask where they come from, like everything else."""
    put(served.ol.store.run, 2)
    token = served.token("admin")
    with httpx.Client(base_url=served.url, trust_env=False) as browser:
        browser.post("/login", json={"token": token}, headers={"origin": served.url})
        for path, data in (("/jobs/cancel", {}), ("/tokens", {"name": "x", "admin": "on"})):
            for headers in ({"origin": "https://evil.example"}, {"origin": "null"}, {}):
                answer = browser.post(path, data=data, headers=headers | FORM)
                assert answer.status_code == 403, (path, headers)
    assert served.ol.counts()["ready"] == 2
    assert "token-created" not in str(served.ol.store.run(_notes))


def _notes() -> Any:
    from outlast.ops.report import history

    return (yield from history("00000000-0000-0000-0000-000000000000"))


def test_what_is_secret_is_on_no_page(served: Served) -> None:
    """R200: marked arguments are masked, on the page and in full."""
    args = '{"user": 7, "secret:card": "4111-1111", "note": "' + "x" * 9000 + '"}'
    (job,) = put(served.ol.store.run, args=args)
    text = served.get(f"/jobs/{job.id}").text
    assert "***" in text and "4111" not in text and "x" * 3000 not in text
    whole = served.get(f"/jobs/{job.id}?all=args").text
    assert "x" * 9000 in whole and "4111" not in whole


def test_a_flow_is_drawn_or_summed_up(served: Served, ol: Outlast) -> None:
    """Few jobs are drawn and listed; many are counted by task and state."""

    @ol.task(name="part")
    def part(n: int) -> None: ...

    small = ol.enqueue(chain(*(part.job(n) for n in range(4))))[0].flow
    large = ol.enqueue(chain(*(part.job(n) for n in range(201))))[0].flow
    text = served.get(f"/flows/{small}").text
    assert text.count('class="edge"') == 3 and text.count('<rect class="box') == 4
    assert "By task and state" not in text
    text = served.get(f"/flows/{large}").text
    assert "<rect" not in text and "By task and state" in text and ">200<" in text
    assert {small, large} <= set(
        re.findall(r'href="/flows/([0-9a-f-]{36})"', served.get("/flows").text)
    )
    assert "0 of 4 jobs" in served.get(f"/flows/{small}").text
    answer = served.post(f"/flows/{small}/cancel", content=b"", headers=FORM)
    assert answer.status_code == 303 and ol.flow(small).state == "cancelled"


def test_a_neighbour_that_belongs_to_somebody_else_is_not_shown(served: Served) -> None:
    """R145: neither before nor after a job, nor by its name in the flow."""
    from tests.store.flowing import call, lay

    mine, theirs = lay(served.ol.store.run, chain(call(tenant="a"), call(tenant="b")))
    text = served.get(f"/jobs/{mine.id}", served.token("read", tenant="a")).text
    assert theirs.id not in text
    assert theirs.id in served.get(f"/jobs/{mine.id}", served.token("read")).text
    assert served.get(f"/flows/{mine.flow}", served.token("read", tenant="a")).status_code == 404


def test_a_first_token_says_that_everybody_needs_one_now(served: Served) -> None:
    """The page that made it is the last that is open without one."""
    answer = served.post("/tokens", data={"name": "me", "admin": "on"})
    assert answer.status_code == 201 and "every call needs a token" in answer.text
    secret = re.findall(r"olt_[\w-]{43}", answer.text)[0]
    eventually(lambda: served.get("/tokens").status_code == 401, timeout=6)
    assert secret not in served.get("/tokens", secret).text


def test_odd_addresses_are_refused_kindly(served: Served) -> None:
    """No 500, whatever the address says."""
    for path, status in (
        ("/jobs?cursor=x", 422), ("/jobs?state=gone", 422), ("/jobs?what=x", 422),
        ("/jobs?queue=%00", 422), ("/jobs?text=%F0%9F", 200), ("/jobs/x", 404),
        ("/flows/x", 404), ("/tokens/x/revoke", 404), ("/schedule?cursor=nan_x", 200),
        ("/schedule?cursor=nan_00000000-0000-0000-0000-000000000000", 200),
        ("/schedule?cursor=1e300_00000000-0000-0000-0000-000000000000", 200),
        ("/jobs/00000000-0000-0000-0000-000000000000?after=-1", 422),
        ("/jobs/00000000-0000-0000-0000-000000000000", 404),
        (f"/jobs?text={'%25_!' * 50}", 200),
    ):  # fmt: skip
        answer = served.get(path, headers={"accept": "text/html"})
        assert answer.status_code == status, path
        assert answer.headers["content-type"].startswith("text/html")


@pytest.mark.kinds("sqlite", "postgres")
def test_looking_at_a_job_writes_nothing_and_shows_what_was_said_just_now(
    database: Database,
) -> None:
    """R200: what has no place yet (PostgreSQL) stands last, for who follows to be told again."""
    rare = RetentionSettings(prune_every=3600.0)  # which gives places, too
    with Outlast(database.url, schema=database.schema, retention=rare) as ol, serving(ol) as served:
        served.get("/jobs")
        eventually(lambda: any(duty.name == "prune" and duty.succeeded_at for duty in ol.duties()))
        held = claimed(ol)
        say(ol, held, [1], total=9)
        ol.store.run(assign_positions)
        say(ol, held, [2], total=9)
        for _ in range(2):
            text = served.get(f"/jobs/{held.id}").text
            assert text.index("1 of 9") < text.index("2 of 9")
            assert text.count("data-again") == (0 if database.is_sqlite else 1)
            assert re.search(r"/events\?after=\d+", text)
        if not database.is_sqlite:
            waiting = f"SELECT count(*) FROM {table(database, 'event')} WHERE place IS NULL"
            assert database.rows(waiting) == [(1,)]


def test_a_job_s_page_says_why_it_waits_for_its_lane(served: Served, ol: Outlast) -> None:
    """R120, R199: as `outlast job` and the API do."""
    ol.limit("mail", lane_running=0)
    run = ol.store.run
    (job,) = put(run, queue="mail", lane="<acme>")
    card = ol.worker().registration_row() | {"id": "w1", "tasks": '["work"]'}
    run(worker_ops.register, card)
    said = "The limit of lane <acme> is 0: no job of it may run."
    assert said in unescape(served.get(f"/jobs/{job.id}").text)
    assert "<acme>" not in served.get(f"/jobs/{job.id}").text
    assert served.get(f"/api/v1/jobs/{job.id}/explain").json()["explanation"] == said
