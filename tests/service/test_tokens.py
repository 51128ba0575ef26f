"""Tokens: what lets a caller in, and how soon it does so no longer."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import Counter
from typing import Any

import pytest
from starlette.requests import Request

from outlast import Outlast
from outlast.model.api_token import PREFIX, TOKEN_BYTES, new_token, token_hash
from outlast.model.settings import ServiceSettings
from outlast.ops import tokens
from outlast.service import service
from outlast.service.auth.throttle import MAX_ADDRESSES, MAX_CONCURRENT_LOOKUPS, Throttle
from tests.service.serving import Served, serving
from tests.support import Database, eventually

SOON = 5.0  # seconds within which a revoked token opens nothing any more


def test_a_token_is_random_and_not_kept(served: Served, database: Database) -> None:
    """256 bits behind a prefix; the database has its SHA-256 alone."""
    secret, other = served.token("read"), served.token("read")
    assert secret != other and secret.startswith(PREFIX)
    assert TOKEN_BYTES * 8 >= 256 and len(secret) >= len(PREFIX) + TOKEN_BYTES * 8 / 6
    table = "outlast_token" if database.is_sqlite else "token"
    kept = str(database.rows(f"SELECT * FROM {table}"))
    assert token_hash(secret) in kept
    assert secret not in kept and secret.removeprefix(PREFIX) not in kept


def test_from_the_first_token_on_every_call_needs_one(served: Served) -> None:
    """Deny by default: also when all of them are revoked, and on a service that was open."""
    assert served.get("/api/v1/whoami").status_code == 200
    secret, id = served.made_token("read")
    eventually(lambda: served.get("/api/v1/whoami").status_code == 401, timeout=SOON)
    assert served.get("/api/v1/whoami", secret).status_code == 200
    served.revoke(id)
    eventually(lambda: served.get("/api/v1/whoami", secret).status_code == 401, timeout=SOON)
    refused = served.get("/api/v1/whoami")
    assert refused.status_code == 401, "revoking the last one opens nothing"
    assert refused.json()["detail"].endswith("in the header Authorization, after the word Bearer")
    assert refused.headers["www-authenticate"].startswith("Bearer")
    with serving(served.ol) as another:
        assert another.get("/api/v1/whoami").status_code == 401, "nor on an instance that is new"


def test_a_token_ends_when_it_was_to_end(served: Served) -> None:
    secret = served.token("read", expires_in=1.0)
    since = time.monotonic()
    assert served.get("/api/v1/whoami", secret).status_code == 200
    eventually(lambda: served.get("/api/v1/whoami", secret).status_code == 401, timeout=SOON)
    assert time.monotonic() - since > 0.9


@pytest.mark.kinds("sqlite")
async def test_who_stays_is_shown_out_within_five_seconds(ol: Outlast) -> None:
    """Streams wait for one event: it is set when their token is revoked, and for no other's."""
    app = service(ol)
    state = app.service
    async with app.lifespan(None):
        secret, gone = await made(ol)
        other, _ = await made(ol)
        leaving = await state.principals._by_token(request(), secret)
        staying = await state.principals._by_token(request(), other)
        async with state.revocations.watch(leaving) as over, state.revocations.watch(staying) as no:
            assert len(state.revocations) == 2
            await ol.store.arun(tokens.revoke, gone, "test")
            since = time.monotonic()
            await asyncio.wait_for(over.wait(), SOON)
            assert time.monotonic() - since < SOON and not no.is_set()
        assert len(state.revocations) == 0


def request() -> Request:
    return Request({"type": "http", "headers": [], "client": ("127.0.0.1", 1)})


async def made(ol: Outlast) -> tuple[str, str]:
    secret, new = new_token("test", ["read"])
    return secret, (await ol.store.arun(tokens.create, new, "test")).id


def test_a_waiting_call_ends_with_its_token(served: Served) -> None:
    """A long-poll is a stream, too."""
    job = served.post("/api/v1/jobs", json={"task": "t"}).json()["id"]
    secret, id = served.made_token("read")
    since = time.monotonic()
    threading.Timer(0.5, served.revoke, [id]).start()
    answer = served.get(f"/api/v1/jobs/{job}/result?wait=30", secret)
    assert answer.status_code == 401
    assert time.monotonic() - since < 0.5 + SOON


def test_use_is_noted_now_and_then(served: Served) -> None:
    secret, id = served.made_token("read")

    def used() -> object:
        (found,) = [one for one in served.ol.store.run(tokens.tokens) if one.id == id]
        return found.used_at

    assert used() is None
    served.get("/api/v1/whoami", secret)
    first = used()
    assert first is not None
    served.get("/api/v1/whoami", secret)
    assert used() == first


@pytest.mark.kinds("sqlite")
async def test_ten_thousand_wrong_tokens_are_refused_and_throttled(
    ol: Outlast, database: Database
) -> None:
    """R225: all refused, most of them without a look at the database, and recorded in a few lines;
    a good token from the same address passes, at its first use too."""
    app = service(ol, ServiceSettings(guesses=20))
    secret, _ = await made(ol)
    async with app.lifespan(None):
        statuses: Counter[int] = Counter()
        for number in range(10_000):
            status, headers = await ask(app, "10.1.2.3", f"olt_{number:043}")
            statuses[status] += 1
            assert status != 429 or int(headers[b"retry-after"]) >= 1
        assert set(statuses) == {401, 429} and sum(statuses.values()) == 10_000
        assert statuses[401] < 100, "so many tries, and then as many per minute"
        assert (await ask(app, "10.1.2.3", secret))[0] == 200, "a good token passes, also unseen"
        assert (await ask(app, "10.1.2.3", f"olt_{1:043}"))[0] == 429
        assert app.service.failed_logins.total == statuses[401]
        await app.service.failed_logins.record()
    rows = database.rows("SELECT data FROM outlast_event WHERE kind = 'wrong-tokens'")
    told = [json.loads(data) for (data,) in rows]
    assert sum(one["tries"] for one in told) == statuses[401] and len(told) < 10
    assert all(one["addresses"] == ["10.1.2.3"] for one in told)


@pytest.mark.kinds("sqlite")
async def test_guesses_that_come_together_are_throttled_too(ol: Outlast) -> None:
    """Before the first of them is known to be wrong; those of others are not held up."""
    app = service(ol, ServiceSettings(guesses=20))
    secret, _ = await made(ol)
    async with app.lifespan(None):
        guesses = [ask(app, "10.1.2.3", f"olt_{number:043}") for number in range(1000)]
        right = [ask(app, "10.1.2.4", secret) for _ in range(90)]
        answers = await asyncio.gather(*guesses, *right)
    statuses = Counter(status for status, _ in answers[:1000])
    assert set(statuses) == {401, 429} and statuses[401] <= MAX_CONCURRENT_LOOKUPS
    assert {status for status, _ in answers[1000:]} == {200}


@pytest.mark.kinds("sqlite")
async def test_good_tokens_pass_where_others_guess(
    ol: Outlast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R225: tokens seen before, new ones, and those of a service that has just started. Guesses
    cost one read a second, however many come; a revoked token does not pass."""
    read: Counter[str] = Counter()
    for name in ("live_hashes", "by_hash"):
        monkeypatch.setattr(tokens, name, _counted(getattr(tokens, name), name, read))
    known, _ = await made(ol)
    revoked, id = await made(ol)
    address = "10.1.2.3"
    for restart in (False, True):
        app = service(ol, ServiceSettings(guesses=2))
        async with app.lifespan(None):
            if not restart:
                assert (await ask(app, address, known))[0] == 200
                assert (await ask(app, address, revoked))[0] == 200
                await ol.store.arun(tokens.revoke, id, "test")
                app.service.principals._cache.popitem()  # as if two seconds had passed
            guesses = [await ask(app, address, f"olt_{n:043}") for n in range(50)]
            assert {status for status, _ in guesses[2:]} == {429}
            looked_up = read["by_hash"]
            for seen in app.service.principals._cache.values():
                object.__setattr__(seen, "until", 0.0)
            assert (await ask(app, address, known))[0] == 200
            assert (await ask(app, address, revoked))[0] in (401, 429)
            assert read["by_hash"] <= looked_up + 2
            new, _ = await made(ol)
            app.service.principals._live._fresh_until = 0.0  # as if a second had passed
            assert (await ask(app, address, new))[0] == 200
    assert read["live_hashes"] <= 6


def _counted(op: Any, name: str, counts: Counter[str]) -> Any:
    def counting(*args: Any) -> Any:
        counts[name] += 1
        return op(*args)

    return counting


@pytest.mark.kinds("sqlite")
async def test_a_login_passes_where_others_guess(ol: Outlast) -> None:
    """R225: the dashboard's login asks the same way, and a session is not throttled at all."""
    with serving(ol, ServiceSettings(guesses=1)) as served:
        secret = served.token("read")
        for number in range(5):
            served.get("/api/v1/whoami", f"olt_{number:043}")
        assert served.get("/api/v1/whoami", f"olt_{9:043}").status_code == 429
        wrong = served.post("/login", json={"token": f"olt_{9:043}"})
        assert wrong.status_code == 429
        begun = served.post("/login", json={"token": secret})
        assert begun.status_code == 204
        assert served.get("/api/v1/whoami").status_code == 200, "by the cookie"


async def ask(app: Any, address: str, token: str) -> tuple[int, dict[bytes, bytes]]:
    """One call of the app itself, from any address."""
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request"}

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"host", b"outlast"), (b"authorization", f"Bearer {token}".encode())]
    await app(
        {"type": "http", "method": "GET", "path": "/api/v1/whoami", "query_string": b"",
         "headers": headers, "client": (address, 1), "scheme": "http", "server": ("h", 80)},
        receive, send,
    )  # fmt: skip
    return sent[0]["status"], dict(sent[0]["headers"])


def test_a_crowd_of_addresses_takes_no_memory() -> None:
    throttle = Throttle(3)
    for number in range(3 * MAX_ADDRESSES):
        throttle.record_failure(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}")
    assert len(throttle) == MAX_ADDRESSES
    for _ in range(3):
        throttle.record_failure("2001:db8::1")
    assert throttle.wait("2001:db8::ffff") > 0, "one network, one guesser"
    assert throttle.wait("2001:db9::1") == 0


def test_what_people_do_with_tokens_is_on_record(served: Served, database: Database) -> None:
    """R200: made and revoked, by whom; never the token."""
    secret, id = served.made_token("read", "work", tenant="acme", queues=["mail"])
    served.revoke(id)
    served.revoke(id)
    table = "outlast_event" if database.is_sqlite else "event"
    query = f"SELECT kind, CAST(data AS text) FROM {table} WHERE kind LIKE 'token-%' ORDER BY seq"
    rows = database.rows(query.replace("%", "%%") if not database.is_sqlite else query)
    assert [kind for kind, _ in rows] == ["token-created", "token-revoked"]
    told = json.loads(rows[0][1])
    assert told["id"] == id and told["by"] == "test" and told["queues"] == ["mail"]
    assert secret not in str(rows) and token_hash(secret) not in str(rows)


def test_two_instances_sign_with_one_key(ol: Outlast) -> None:
    """Whichever of them a browser or a worker comes back to."""

    async def key(app: object, purpose: str) -> bytes:
        return await app.service.key(purpose)  # type: ignore[attr-defined]

    async def keys() -> list[bytes]:
        one, two = service(ol), service(ol)
        return [await key(one, "a"), await key(two, "a"), await key(one, "b")]

    first, second, other = asyncio.run(keys())
    assert first == second != other and len(first) == 32
