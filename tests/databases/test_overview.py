"""One dashboard over several databases: what it shows, and to whom."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from outlast import Databases
from outlast.model.api_token import new_token
from outlast.ops import tokens
from outlast.service import services
from tests.service.dashboard.looking import Seen
from tests.service.serving import running
from tests.support import eventually


@pytest.fixture
def greet(databases: Databases) -> Any:
    @databases.task
    def greet() -> None: ...

    return greet


@contextmanager
def browsing(app: Any) -> Iterator[httpx.Client]:
    with running(app) as url, browser_of(url) as browser:
        yield browser


def browser_of(url: str) -> httpx.Client:
    """A browser's headers; forms come from a page of the same origin."""
    headers = {"accept": "text/html", "origin": url}
    return httpx.Client(base_url=url, headers=headers, trust_env=False, verify=False)


def token(databases: Databases, name: str, *scopes: str, **limits: Any) -> str:
    secret, new = new_token("test", scopes or ("read",), **limits)
    databases.by_name[name].store.run(tokens.create, new, "test")
    return secret


def log_in(browser: httpx.Client, name: str, secret: str) -> None:
    answer = browser.post(f"/{name}/login", data={"token": secret})
    assert answer.status_code == 303, answer.text


def words(browser: httpx.Client, path: str = "/", status: int = 200) -> str:
    answer = browser.get(path)
    assert answer.status_code == status, answer.text
    seen = Seen(answer.text)
    assert seen.inline == []
    return seen.text


def test_each_database_is_shown_with_its_counts(databases: Databases, greet: Any) -> None:
    """And is served under its name; each page of it leads back."""
    for tenant in ("acme", "acme", "umbrella"):
        greet.using(tenant=tenant).enqueue()
    with browsing(services(databases)) as browser:
        text = words(browser)
        assert "eu reachable 2 0 0 0 0" in text and "us reachable 1 0 0 0 0" in text
        links = Seen(browser.get("/").text).links
        assert (links["eu"], links["us"]) == ("/eu/", "/us/")
        for name, number in (("eu", 2), ("us", 1)):
            assert browser.get(f"/{name}/api/v1/counts").json()["counts"]["ready"] == number
            page = Seen(browser.get(f"/{name}/").text)
            assert page.links["All databases"] == "/" and f"All databases / {name}" in page.text
        assert browser.get("/asia/").status_code == 404
        assert browser.get("/eu", follow_redirects=True).url.path == "/eu/"


def test_it_is_mounted_under_a_prefix(databases: Databases) -> None:
    """Without its lifespan, too: the first request starts it."""
    app = services(databases)
    with browsing(Starlette(routes=[Mount("/jobs", app)])) as browser:
        seen = Seen(browser.get("/jobs/").text)
        assert (seen.links["eu"], seen.links["us"]) == ("/jobs/eu/", "/jobs/us/")
        assert Seen(browser.get("/jobs/us/").text).links["All databases"] == "/jobs/"
        for path in re.findall(r'(?:href|src)="(/jobs/[^"]*)"', browser.get("/jobs/").text):
            assert browser.get(path).status_code == 200, path


def test_tokens_and_sessions_are_those_of_each_database(databases: Databases) -> None:
    """A session in one database opens no other, and neither ends the other's."""
    secrets = {name: token(databases, name) for name in databases.by_name}
    with browsing(services(databases)) as browser:
        assert "Log in to a database" in words(browser, status=401)
        log_in(browser, "eu", secrets["eu"])
        assert browser.get("/eu/").status_code == 200
        assert browser.get("/us/").status_code == 401
        text = words(browser)
        assert "eu reachable" in text and "us Log in" in text
        log_in(browser, "us", secrets["us"])
        assert browser.get("/eu/").status_code == browser.get("/us/").status_code == 200
        assert "us reachable" in words(browser)
        assert browser.post("/eu/logout").status_code == 303
        text = words(browser)
        assert "eu Log in" in text and "us reachable" in text
        wrong = browser.post("/us/login", data={"token": secrets["eu"]})
        assert wrong.status_code == 401


def test_a_stranger_learns_no_names(databases: Databases) -> None:
    """Nor does a tenant: it sees its own database, and its own jobs."""
    token(databases, "us")
    own = token(databases, "eu", tenant="acme")
    nothing = token(databases, "us", "enqueue")
    with browsing(services(databases)) as browser:
        text = words(browser, status=401)
        assert "Log in to a database" in text
        assert not re.search(r"\b(eu|us)\b", browser.get("/").text)
        assert browser.get("/-/static/none.js").status_code == 404
        assert browser.get("/?database=asia").status_code == 401
        sent = browser.get("/?database=eu")
        assert (sent.status_code, sent.headers["location"]) == (303, "/eu/login")
        programs = browser.get("/", headers={"authorization": f"Bearer {own}"})
        assert programs.status_code == 401 and "programs use /NAME" in programs.text
        log_in(browser, "eu", own)
        text = words(browser)
        assert "eu reachable" in text and "us" not in text.split()
        assert browser.post("/us/login", json={"token": nothing}).status_code == 204
        assert "us" not in words(browser).split(), "this token may not read"


def test_a_tenants_counts_are_its_own(databases: Databases, greet: Any) -> None:
    for tenant in ("acme", "globex", "globex"):
        greet.using(tenant=tenant).enqueue()
    own = token(databases, "eu", tenant="acme")
    with browsing(services(databases)) as browser:
        log_in(browser, "eu", own)
        assert "eu reachable 1 0 0 0 0" in words(browser)


def test_a_database_that_is_away_is_named_and_nothing_waits_for_it(
    databases: Databases,
) -> None:
    databases.by_name["us"].move("postgresql://127.0.0.1:1/none")
    app = services(databases)
    with browsing(app) as browser:
        text = words(browser)
        assert "us unreachable since" in text and "eu reachable" in text
        databases.by_name["eu"].store.run(tokens.create, new_token("test", ("read",))[1], "test")
        eventually(lambda: browser.get("/").status_code == 401)
        text = words(browser, status=401)
        assert "At least one database is unreachable" in text
        assert "us" not in text.split()
        assert browser.get("/livez").status_code == browser.get("/eu/readyz").status_code == 200
        assert browser.get("/us/readyz").status_code == 503


def test_streams_of_all_end_when_the_server_says_that_it_stops(databases: Databases) -> None:
    app = services(databases)
    with (
        browsing(app) as browser,
        browser.stream("GET", "/eu/api/v1/events", timeout=20) as stream,
    ):
        assert stream.status_code == 200
        part = app.by_name["eu"].service
        eventually(lambda: part.broadcaster.subscribers == 1)
        part._tasks[0].get_loop().call_soon_threadsafe(app.close_streams)
        for _ in stream.iter_raw():  # until it ends: a stream lasts an hour
            pass
