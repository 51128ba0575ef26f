"""Browsers: sessions that begin with a token, and what other sites cannot make them do."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from outlast import Outlast
from outlast.model.api_token import new_token
from outlast.ops import sessions, tokens
from outlast.service import service
from outlast.service.auth.sessions import COOKIE, HOST_COOKIE
from outlast.service.security import SECURITY_HEADERS
from tests.service.serving import Served, serving
from tests.support import Database, eventually

pytestmark = pytest.mark.kinds("sqlite")


class Browser:
    """What a browser sends: its cookies, and where a page comes from."""

    def __init__(self, served: Served) -> None:
        self.origin = served.url
        self.http = httpx.Client(base_url=served.url, trust_env=False, verify=False)

    def post(self, path: str, origin: str | None = "", **said: Any) -> httpx.Response:
        headers = {} if origin is None else {"origin": origin or self.origin}
        return self.http.post(path, headers=headers, **said)


@pytest.fixture
def browser(served: Served) -> Any:
    made = Browser(served)
    yield made
    made.http.close()


def test_a_session_begins_with_a_token_and_ends_with_logout(
    served: Served, browser: Browser
) -> None:
    token = served.token("admin", tenant="acme")
    answer = browser.post("/login", json={"token": token})
    assert answer.status_code == 204
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=strict" in cookie and token not in cookie
    assert browser.http.get("/api/v1/whoami").json()["tenant"] == "acme"
    assert browser.post("/api/v1/jobs", json={"task": "t"}).status_code == 201
    assert browser.post("/logout").status_code == 204
    assert browser.http.get("/api/v1/whoami").status_code == 401


def test_after_a_logout_a_copy_of_the_cookie_opens_nothing(
    served: Served, browser: Browser
) -> None:
    """Nor on another instance, nor a stream or a call that waits; another browser of the same token
    stays where it is."""
    token = served.token("admin")
    browser.post("/login", json={"token": token})
    stolen = {"cookie": f"{COOKIE}={browser.http.cookies[COOKIE]}"}
    other = Browser(served)
    other.post("/login", json={"token": token})
    job = browser.post("/api/v1/jobs", json={"task": "t"}).json()["id"]
    with serving(served.ol) as another, ThreadPoolExecutor(1) as beside:
        assert served.get("/api/v1/whoami", headers=stolen).status_code == 200
        assert another.get("/api/v1/whoami", headers=stolen).status_code == 200
        waits = beside.submit(another.get, f"/api/v1/jobs/{job}/result?wait=30", headers=stolen)
        eventually(lambda: len(another.app.service.revocations) == 1)
        assert browser.post("/logout").status_code == 204
        assert served.get("/api/v1/whoami", headers=stolen).status_code == 401, "here at once"
        assert waits.result(20).status_code == 401
        eventually(lambda: another.get("/api/v1/whoami", headers=stolen).status_code == 401)
    assert other.http.get("/api/v1/whoami").status_code == 200
    assert served.get("/api/v1/whoami", token).status_code == 200
    other.http.close()


def test_a_session_is_over_when_its_time_is(ol: Outlast) -> None:
    _, new = new_token("t", ["read"])
    ol.store.run(tokens.create, new, "test")
    ol.store.run(sessions.begin, "short", new.id, 0.3)
    ol.store.run(sessions.begin, "long", new.id, 60.0)
    assert ol.store.run(sessions.valid_sessions, {"short", "long", "none"}) == {"short", "long"}
    eventually(lambda: ol.store.run(sessions.token_of, "short") is None)
    assert ol.store.run(sessions.valid_sessions, {"short", "long"}) == {"long"}


def test_what_is_kept_of_sessions_is_bounded(ol: Outlast, database: Database) -> None:
    """Those that are over go when somebody logs in; one token's are so many, the newest."""
    for name in ("busy", "calm"):
        _, new = new_token(name, ["read"])
        ol.store.run(tokens.create, new, "test")
        for number in range(sessions.MAX_SESSIONS_PER_TOKEN + 5 if name == "busy" else 2):
            ol.store.run(sessions.begin, f"{name} {number}", new.id, 60.0 + number)
    ol.store.run(sessions.begin, "over", new.id, 0.0)
    kept = {hash for (hash,) in database.rows("SELECT hash FROM outlast_session")}
    assert kept == {
        f"busy {number}" for number in range(5, sessions.MAX_SESSIONS_PER_TOKEN + 5)
    } | {
        "calm 0",
        "calm 1",
    }


def test_over_https_the_cookie_is_for_https_alone(ol: Outlast) -> None:
    secret, new = new_token("t", ["read"])
    ol.store.run(tokens.create, new, "test")

    async def login(origin: str) -> httpx.Response:
        transport = httpx.ASGITransport(service(ol), client=("10.0.0.1", 1))
        async with httpx.AsyncClient(transport=transport, base_url="https://jobs.example") as web:
            return await web.post("/login", json={"token": secret}, headers={"origin": origin})

    assert asyncio.run(login("http://jobs.example")).status_code == 403, "and so is the page"
    cookie = asyncio.run(login("https://jobs.example")).headers["set-cookie"]
    assert cookie.startswith(f"{HOST_COOKIE}=") and "Secure" in cookie and "Path=/" in cookie


def test_a_session_ends_with_its_token(served: Served, browser: Browser) -> None:
    token, id = served.made_token("read")
    browser.post("/login", json={"token": token})
    assert browser.http.get("/api/v1/whoami").status_code == 200
    served.revoke(id)
    eventually(lambda: browser.http.get("/api/v1/whoami").status_code == 401, timeout=5)


def test_a_cookie_that_was_changed_is_none(served: Served, browser: Browser) -> None:
    """Any byte of it."""
    browser.post("/login", json={"token": served.token("read")})
    good = browser.http.cookies[COOKIE]
    for place in range(0, len(good), 7):
        bad = good[:place] + ("x" if good[place] != "x" else "y") + good[place + 1 :]
        answer = served.get("/api/v1/whoami", headers={"cookie": f"{COOKIE}={bad}"})
        assert answer.status_code == 401, place
    for bad in ("", ".", "x.y", good[1:], good.partition(".")[0], "é", "é.é", good * 9):
        answer = served.get("/api/v1/whoami", headers={"cookie": f"{COOKIE}={bad}".encode()})
        assert answer.status_code == 401, bad
    assert served.get("/api/v1/whoami", headers={"cookie": f"{COOKIE}={good}"}).status_code == 200


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:1", None])
def test_another_site_cannot_use_a_session(
    served: Served, browser: Browser, origin: str | None
) -> None:
    browser.post("/login", json={"token": served.token("admin")})
    assert browser.post("/api/v1/jobs", json={"task": "t"}).status_code == 201
    assert browser.post("/api/v1/jobs", origin, json={"task": "t"}).status_code == 403
    assert browser.post("/login", "https://evil.example", json={"token": "x"}).status_code == 403
    assert sum(served.ol.counts().values()) == 1


def test_while_there_is_no_token_other_sites_and_other_names_get_nothing(served: Served) -> None:
    """A page that somebody visits cannot reach what is open to this machine: neither by a form,
    nor by a name of its own that it points here."""
    assert served.post("/api/v1/jobs", json={"task": "t"}).status_code == 201
    for headers in (
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ):
        answer = served.post("/api/v1/jobs", json={"task": "t"}, headers=headers)
        assert answer.status_code == 403, headers
    for headers in (
        {"host": "evil.example"},
        {"host": "127.0.0.1.evil.example"},
        {"x-forwarded-for": "10.0.0.1"},
        {"forwarded": "for=10.0.0.1"},
        {"x-forwarded-proto": "https"},
        {"cf-connecting-ip": "10.0.0.1"},
    ):
        assert served.get("/api/v1/whoami", headers=headers).status_code == 401, headers
    form = {"content-type": "text/plain", "origin": served.url}
    answer = served.post("/api/v1/jobs", content='{"task": "t"}', headers=form)
    assert answer.status_code == 415, "a form can send text, and a browser asks before JSON"
    for name in ("localhost", "127.0.0.1", "[::1]"):
        port = served.url.rpartition(":")[2]
        assert served.get("/api/v1/whoami", headers={"host": f"{name}:{port}"}).status_code == 200


async def test_what_is_open_to_this_machine_is_so_to_no_other(ol: Outlast) -> None:
    transport = httpx.ASGITransport(service(ol), client=("192.0.2.7", 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as web:
        assert (await web.get("/api/v1/whoami")).status_code == 401
    await ol.store.aclose()


def test_every_answer_has_the_headers_that_keep_browsers_safe(served: Served) -> None:
    for answer in (
        served.get("/api/v1/whoami"),
        served.get("/nothing"),
        served.post("/api/v1/whoami"),
        served.post("/api/v1/jobs", content=b"{", headers={"content-type": "application/json"}),
    ):
        for name, value in SECURITY_HEADERS.items():
            assert answer.headers[name] == value, (answer.request.url, name)
    policy = SECURITY_HEADERS["content-security-policy"]
    assert "unsafe" not in policy and "default-src 'none'" in policy


def test_a_page_s_form_logs_in_and_goes_on(served: Served, browser: Browser) -> None:
    """Without a script: the form is sent on to the start."""
    token = served.token("read")
    answer = browser.post("/login", data={"token": token})
    assert answer.status_code == 303 and answer.headers["location"] == "/"
    assert browser.http.get("/api/v1/whoami").status_code == 200
    assert browser.post("/login", data={"token": "olt_wrong"}).status_code == 401
    assert browser.post("/login", data={"wrong": "x"}).status_code == 422
    assert browser.post("/login", data={"token": "x" * 9000}).status_code == 413
    assert browser.post("/login", content=b"token").status_code == 415
