"""The pages, as somebody without JavaScript sees them."""

from __future__ import annotations

import re

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from outlast import Outlast
from outlast.model.worker_names import is_offer
from outlast.ops import workers as worker_ops
from outlast.ops.doctor.checks import examine
from outlast.ops.doctor.database import HostFacts
from outlast.ops.explain import explain
from outlast.ops.reclaim import Refusal, reclaim_from_workers, record_refusals
from outlast.ops.report import worker_rows, workers
from outlast.ops.table_metrics import read_table_metrics
from outlast.service import service
from outlast.service.dashboard.layout import MENU
from outlast.store.schema import latest
from tests.service.dashboard.looking import Browser, looking
from tests.service.serving import Served, running
from tests.store.jobs import end, put, take
from tests.support import eventually

OURS = ("/", "/queues", "/workers", "/recovery", "/queues/pause?queue=mail")
HOSTILE = "<img src=x onerror=alert(1)>\"'&<script>alert(2)</script>{{7*7}}"


def busy(ol: Outlast, name: str = "default") -> None:
    """Jobs in several states, a worker at work, one that died, and a zombie."""
    run = ol.store.run
    for id in (f"w1 {name}"[:60], "w2"):
        run(worker_ops.register, ol.worker().registration_row() | {"id": id, "host": name})
    put(run, 6, queue=name, task=name, tenant=name)
    first, _second, *_ = take(run, 3, queue=name, worker="w2")
    take(run, 2, queue=name, worker=f"w1 {name}"[:60])
    end(run, first)
    run(reclaim_from_workers, [f"w1 {name}"[:60]], "exit", name)
    take(run, 1, queue=name, worker="w2")
    run(record_refusals, [Refusal(*first.claim_key[:2], name, name)])


def test_pages_show_what_there_is(served: Served, browser: Browser) -> None:
    busy(served.ol, "mail")
    assert "running 3" in browser.go("/").text.replace("  ", " ")
    queues = browser.go("/queues")
    assert queues.links["mail"] == "/jobs?queue=mail"
    workers = browser.go("/workers").text
    assert "w2" in workers and "mail" in workers
    recovery = browser.go("/recovery").text
    assert "its supervisor detected its exit" in recovery and "w1 mail" in recovery
    assert re.search(r"mail mail w1 mail .* ms running", recovery), "back, in so many ms"
    assert "not yet" in recovery and "Zombie writes rejected" in recovery


def test_what_is_paused_is_named_where_one_looks_first(served: Served, browser: Browser) -> None:
    """R166: and nothing is said of a queue that is not, or was resumed."""
    put(served.ol.store.run, 1, queue="mail")
    for queue in ("mail", *(f"queue-{n}" for n in range(7))):
        served.ol.pause(queue)
    page = browser.go("/")
    assert page.links["mail"] == "/queues?text=mail" and "and 3 more" in page.text
    assert "1 problem found" not in page.text, "it is meant to wait"
    for queue in served.ol.queues():
        served.ol.resume(queue.name)
    served.app.service.live_view.cached.last = None
    assert "paused" not in browser.go("/").text


def test_many_refused_writes_hide_no_death(served: Served, browser: Browser) -> None:
    """R200: each kind by itself; the figures are those of a day, the lists go further back."""
    run = served.ol.store.run
    busy(served.ol, "mail")
    text = browser.go("/recovery").text
    assert re.search(r"Workers lost 1 in 24 hours", text), text
    (first, *_) = put(run, 1)
    run(record_refusals, [Refusal(first.id, n, "zombie", "succeeded") for n in range(1200)])
    text = browser.go("/recovery").text
    assert "Workers lost 1 in 24 hours" in text and "w1 mail" in text
    assert "Zombie writes rejected 1,000+ in 24 hours" in text


def test_a_server_is_no_worker(served: Served, browser: Browser) -> None:
    """R199, R201: where nobody else lives, all that asks for a worker says that there is none; nor
    does its card stand in a list of workers."""
    run = served.ol.store.run
    job = put(run, 1, queue="mail")[0]
    served.get("/")
    desk = eventually(lambda: next((one for one in run(worker_rows) if is_offer(one.id)), None))
    assert run(workers) == [] and served.get("/api/v1/workers").json() == {"workers": []}
    assert "No workers" in browser.go("/workers").text
    (held,) = take(run, 1, queue="mail", worker=desk.id)
    assert "1 job on the way to remote workers" in browser.go("/workers").text
    end(run, held, "released")
    served.app.service.live_view.cached.last = None
    said = browser.go("/").text
    assert "1 problem found" in said and "has 1 ready job and no live worker" in said
    assert "No live worker serves the queue" in run(explain, job.id, list)
    assert run(read_table_metrics).workers.get("working", 0) == 0
    found = [finding.sentence for finding in run(examine, HostFacts(latest()))]
    assert "The queue 'mail' has 1 ready job and no live worker." in found


@pytest.mark.parametrize("path", OURS)
@pytest.mark.kinds("sqlite")
def test_what_a_name_says_is_never_markup(served: Served, browser: Browser, path: str) -> None:
    """Stored names in every place; nothing inline that a strict policy would have to allow."""
    busy(served.ol, HOSTILE[:100])
    served.post("/queues/pause", data={"queue": HOSTILE[:100]})
    page = browser.go(path)
    assert "img" not in page.tags or "onerror" not in str(page.inline)
    assert page.inline == [] and page.tags.count("script") == 1, "ours"
    assert "49" not in page.text.split("Outlast")[0], "no template in a template"
    if path not in ("/", OURS[-1]):
        assert "onerror=alert(1)" in page.text, "it is shown as it is"


@pytest.mark.kinds("sqlite")
def test_where_there_is_nothing_pages_teach(served: Served, browser: Browser) -> None:
    assert "outlast enqueue" in browser.go("/").text
    assert "outlast worker" in browser.go("/queues").text
    assert "outlast worker" in browser.go("/workers").text
    assert "kill -9" in browser.go("/recovery").text


@pytest.mark.kinds("sqlite")
def test_a_page_that_is_not_there_says_so_as_a_page(served: Served, browser: Browser) -> None:
    assert "404" in browser.go("/nowhere", 404).text
    assert served.get("/nowhere").headers["content-type"] == "application/problem+json"
    html = {"accept": "text/html"}
    assert "problem" in served.get("/api/v1/nowhere", headers=html).headers["content-type"]


@pytest.mark.kinds("sqlite")
def test_who_is_not_known_logs_in_and_comes_back(served: Served, browser: Browser) -> None:
    """A page asks for a token, with 401; then it is shown. Only pages of ours are gone on to."""
    token = served.token("read")
    asked = browser.go("/queues?sort=dead", 401)
    form = asked.form_to("/login")
    assert form["fields"]["after"] == "/queues?sort=dead"
    wrong = browser.send(form, 401, token="olt_wrong")
    assert "this token is invalid" in wrong.text
    assert "Queues" in browser.send(form, token=token).text
    assert "Pause" not in browser.go("/queues").links, "it may look, and not act"
    assert "lacks the scope" in browser.go("/queues/pause?queue=a", 403).text
    away = browser.http.post(
        "/login",
        data={"token": token, "after": "//evil.example/"},
        headers={"origin": browser.origin},
    )
    assert away.headers["location"] == "/"
    page = browser.go("/queues")
    assert "Log in" in browser.send(page.form_to("/logout"), 401).text


@pytest.mark.kinds("sqlite")
def test_a_token_without_read_is_refused_at_the_login(served: Served, browser: Browser) -> None:
    """It would open no page: the login says so and begins no session; `whoami` needs no scope."""
    token = served.token("enqueue", name="feeder")
    refused = browser.send(browser.go("/login").form_to("/login"), 403, token=token)
    assert "lacks the scope `read`" in refused.text
    assert refused.form_to("/login"), "to try another one"
    assert not browser.http.cookies
    assert served.get("/api/v1/whoami", token).json()["scopes"] == ["enqueue"]


@pytest.mark.kinds("sqlite")
def test_a_theme_is_chosen_without_a_script(served: Served, browser: Browser) -> None:
    form = browser.go("/queues").form_to("/theme")
    browser.send(form, theme="dark")
    answer = browser.http.get("/queues", headers={"accept": "text/html"})
    assert '<html lang="en" data-theme="dark">' in answer.text


@pytest.mark.kinds("sqlite")
def test_style_and_script_are_kept_until_they_change(served: Served, browser: Browser) -> None:
    page = browser.http.get("/queues").text
    (address,) = re.findall(r'href="(/static/outlast\.css\?v=\w+)"', page)
    answer = served.get(address)
    assert "immutable" in answer.headers["cache-control"]
    again = served.get(address, headers={"if-none-match": answer.headers["etag"]})
    assert again.status_code == 304 and not again.content
    assert served.get("/static/nothing.css").status_code == 404
    assert served.get("/static/..%2f__init__.py").status_code == 404


@pytest.mark.kinds("sqlite")
def test_under_a_prefix_every_link_has_it(ol: Outlast) -> None:
    jobs = service(ol)
    put(ol.store.run, 1, queue="mail")
    app = Starlette(routes=[Mount("/deep/down", jobs)], lifespan=jobs.lifespan)
    with running(app) as url, looking(url, "/deep/down") as browser:
        for path in OURS:
            page = browser.go(path)
            addresses = [*page.links.values(), *(form["to"] for form in page.forms)]
            strange = [one for one in addresses if not one.startswith(("/deep/down", "#"))]
            assert strange == []
        form = browser.go("/queues/pause?queue=mail").form_to("/deep/down/queues/pause")
        assert "is paused" in browser.send(form).text


def test_the_menu_has_no_page_twice() -> None:
    assert len({entry.path for entry in MENU}) == len(MENU)


@pytest.mark.kinds("sqlite")
def test_a_database_that_is_away_is_a_page_too(ol: Outlast) -> None:
    """The answer is 503 with a sentence, and never an address."""
    from tests.service.serving import serving

    with serving(ol) as served, looking(served) as browser:
        browser.go("/queues")
        ol.store.close()
        served.app.service.principals._guarded = True  # who calls is asked of nobody now
        answer = httpx.get(f"{served.url}/queues", headers={"accept": "text/html"})
        assert answer.status_code in (401, 503)
        assert "sqlite:///" not in answer.text
