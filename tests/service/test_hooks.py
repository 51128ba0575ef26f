"""Webhooks as a source: `POST /hooks/NAME` makes each signed message one job."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from outlast import Context, InvalidOption, Outlast, WebhookRefused
from outlast.bridges import Http, Message
from outlast.bridges.source_loop import SourceLoop
from outlast.model.settings import ServiceSettings
from outlast.service import hooks, service
from tests.service.hooking import SECRETS, TEXT_SECRET, body_of, signed
from tests.service.serving import Served, serving
from tests.support import Database, Processes, aeventually, eventually
from tests.support.postgres import Postgres
from tests.worker.working import work

STYLES = ["standard", "github", "stripe"]


@contextmanager
def hooked(ol: Outlast, style: str = "standard", **given: Any) -> Iterator[Served]:
    """A service whose source `pay` gets webhooks of this style; its task keeps them in `seen`."""
    seen: list[Message] = given.pop("seen", [])

    @ol.task
    async def pay(body: dict[str, Any], ctx: Context) -> None:
        assert ctx.message is not None and body == ctx.message.body
        seen.append(ctx.message)

    settings = given.pop("settings", None)
    given.setdefault("secret", SECRETS[style])
    ol.source("pay", Http(style, **given), task=pay)
    with serving(ol, settings) as served:
        yield served


def send(
    served: Served, style: str, id: str, body: bytes | None = None, **given: Any
) -> httpx.Response:
    body = body_of(id) if body is None else body
    return served.post("/hooks/pay", content=body, headers=signed(style, id, body, **given))


@pytest.mark.parametrize("style", STYLES)
async def test_a_signed_webhook_is_one_job_however_often_it_comes(ol: Outlast, style: str) -> None:
    """R022, R130: 204 after the commit; a redelivery, with a new signature, is the same job."""
    seen: list[Message] = []
    with hooked(ol, style, headers=["X-Shop"], seen=seen) as served:
        headers = {"x-shop": "7", "cookie": "private", "content-type": "application/json"}
        body = body_of("evt_1")
        first = served.post(
            "/hooks/pay", content=body, headers={**signed(style, "evt_1", body, age=9), **headers}
        )
        assert (first.status_code, first.content) == (204, b"")
        (job,) = ol.jobs()
        assert job.key == "in:pay:evt_1"
        assert send(served, style, "evt_1").status_code == 204
        assert send(served, style, "evt_2").status_code == 204
        assert len(ol.jobs()) == 2
        async with work(ol):
            await aeventually(lambda: ol.counts()["succeeded"] == 2)
    (message,) = [message for message in seen if message.id == "evt_1"]
    assert message.raw == body and message.body == {"id": "evt_1", "n": 1}
    assert message.headers["x-shop"] == "7" and "cookie" not in message.headers
    assert not [name for name in message.headers if "signature" in name]
    (state,) = ol.sources()
    assert (state.received, state.stored, state.broker) == (3, 2, f"webhooks ({style})")


@pytest.mark.kinds("sqlite")
@pytest.mark.parametrize("style", STYLES)
def test_a_request_that_its_sender_did_not_sign_is_refused(ol: Outlast, style: str) -> None:
    """R145: unsigned, with another secret or body, not recent; nothing is stored."""
    other = {"standard": "whsec_" + "A" * 43 + "="}.get(style, "another")
    with hooked(ol, style, settings=ServiceSettings(guesses=1000)) as served:
        body = body_of("e")
        right = signed(style, "e", body)
        name = next(name for name in right if "signature" in name)
        cases = [
            {},
            {**right, name: ""},
            {**right, name: "nonsense"},
            {**right, name: right[name].replace("v1", "v9").replace("sha256", "sha1")},
            {**right, name: right[name][:-4]},
            signed(style, "e", body, other),
            signed(style, "e", body + b" "),
        ]
        if style != "github":  # its signatures have no time
            cases += [signed(style, "e", body, age=301), signed(style, "e", body, age=-302)]
        if style == "standard":
            cases += [{**right, "webhook-id": "f"}, {**right, "webhook-timestamp": "1e9"}]
        if style == "stripe":
            cases += [{name: "t=1,t=2," + right[name]}]
        for headers in cases:
            told = served.post("/hooks/pay", content=body, headers=headers)
            assert told.status_code == 403, headers
            assert told.json()["type"] == "urn:outlast:signature-refused"
            assert SECRETS[style] not in told.text
        assert ol.jobs() == []
        assert served.post("/hooks/pay", content=body, headers=right).status_code == 204


def test_published_examples_of_signatures_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """As GitHub and Standard Webhooks publish them."""
    github = Http("github", secret="It's a Secret to Everybody")
    digest = "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    headers = {"x-hub-signature-256": f"sha256={digest}", "x-github-delivery": "d"}
    assert github.message(github.read_head(headers), headers, b"Hello, World!").id == "d"
    monkeypatch.setattr("time.time", lambda: 1614265330.0)
    standard = Http("standard", secret="whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    headers = {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }
    body = b'{"test": 2432232314}'
    assert standard.message(standard.read_head(headers), headers, body).raw == body
    with pytest.raises(WebhookRefused, match="no signature matches"):
        standard.message(standard.read_head(headers), headers, body + b" ")


@pytest.mark.kinds("sqlite")
def test_secrets_are_changed_without_a_gap_and_shown_nowhere(
    ol: Outlast, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """R198: several at once, from the environment; the service does not start without them."""
    caplog.set_level(logging.DEBUG)
    http = Http("stripe", secret_env="OUR_PAY_SECRETS")

    @ol.task
    async def pay(body: dict[str, Any]) -> None: ...

    ol.source("pay", http, task=pay)
    with pytest.raises(InvalidOption, match="set the environment variable OUR_PAY_SECRETS"):
        service(ol)
    monkeypatch.setenv("OUR_PAY_SECRETS", f"old-secret  {TEXT_SECRET}")
    with serving(ol) as served:
        assert send(served, "stripe", "a", secret="old-secret").status_code == 204
        assert send(served, "stripe", "b", secret=TEXT_SECRET).status_code == 204
        assert send(served, "stripe", "c", secret="old-secret-").status_code == 403
    (state,) = ol.sources()
    shown = f"{http!r} {vars(ol.declared_sources['pay'])} {state} {caplog.text}"
    assert "1 requests refused" in caplog.text
    assert "old-secret" not in shown and TEXT_SECRET not in shown


@pytest.mark.parametrize("style", ["github", "stripe"])
async def test_a_signed_body_that_is_no_json_is_a_dead_job(ol: Outlast, style: str) -> None:
    """R013: with its raw body, and once; the sender does not send it for ever."""
    with hooked(ol, style) as served:
        for _ in range(2):
            assert send(served, style, "odd", b"{broken\xff").status_code == 204
        assert send(served, style, "list", b'["no", "object"]').status_code == 204
        async with work(ol):
            await aeventually(lambda: ol.counts()["dead"] == 2)
    dead = [job.args["$message"] for job in ol.jobs(state="dead")]
    assert sorted(one.get("raw64", one.get("raw")) for one in dead) == [
        '["no", "object"]',
        "e2Jyb2tlbv8=",
    ]


@pytest.mark.kinds("sqlite")
def test_bodies_are_bounded_before_they_are_checked(
    ol: Outlast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R144: each, and all that are being read together; an unsigned one is not read at all."""
    with hooked(ol, settings=ServiceSettings(max_body=10_000)) as served:
        large = b'"' + b"x" * 20_000 + b'"'
        assert send(served, "standard", "large", large).status_code == 413
        assert served.post("/hooks/pay", content=large).status_code == 403
        monkeypatch.setattr(hooks, "MAX_BUFFERED_BYTES", 5_000)
        busy = send(served, "standard", "busy", large[:9_000])
        assert busy.status_code == 503 and busy.headers["retry-after"] == "5"
        for n in range(3):  # what was counted for a request is given back
            assert send(served, "standard", f"s{n}", b'{"n": "%s"}' % (b"x" * 4_000)).is_success
    assert len(ol.jobs()) == 3


def test_a_full_queue_is_told_to_the_sender(ol: Outlast) -> None:
    """R131: nothing is stored; once there is room, the message is taken."""
    ol.queue("default", most_waiting=1)
    with hooked(ol, "github") as served:
        assert send(served, "github", "a").status_code == 204
        full = eventually(lambda: (told := send(served, "github", "a")).is_error and told)
        assert full.status_code == 429 and full.headers["retry-after"] == "10"
        assert send(served, "github", "b").status_code == 429 and len(ol.jobs()) == 1
        ol.cancel(ol.jobs()[0].id)
        assert send(served, "github", "b").status_code == 204


@pytest.mark.kinds("sqlite")
def test_wrong_signatures_are_throttled_and_a_right_one_passes(ol: Outlast) -> None:
    """R147: whoever shares the address with the sender cannot lock it out."""
    with hooked(ol, settings=ServiceSettings(guesses=3)) as served:
        other = "whsec_" + "A" * 43 + "="
        told = [send(served, "standard", "x", secret=other).status_code for _ in range(5)]
        assert told == [403, 403, 403, 429, 429]
        assert send(served, "standard", "x").status_code == 204


def test_while_the_database_is_away_the_sender_is_told_to_come_again(
    own_postgres: Postgres,
) -> None:
    """R054: 503 with Retry-After, and no address of the database; nothing is lost."""
    with Outlast(own_postgres.url()) as ol, hooked(ol, "stripe") as served:
        assert send(served, "stripe", "a").status_code == 204
        own_postgres.stop()
        told = send(served, "stripe", "b")
        assert told.status_code == 503 and int(told.headers["retry-after"]) >= 1
        assert str(own_postgres.port) not in told.text
        own_postgres.start()
        eventually(lambda: send(served, "stripe", "b").status_code == 204, 30)
        assert sorted(job.key or "" for job in ol.jobs()) == ["in:pay:a", "in:pay:b"]


@pytest.mark.kinds("sqlite")
def test_only_the_service_of_the_app_receives(ol: Outlast) -> None:
    """An unknown hook is 404, GET is 405; workers and `outlast source` leave webhooks alone."""
    with hooked(ol) as served:
        assert served.post("/hooks/other", content=b"{}").status_code == 404
        assert served.get("/hooks/pay").status_code == 405
        assert served.token("admin") and send(served, "standard", "a").status_code == 204
    assert ol._worker_services(sources=True) == []
    with pytest.raises(InvalidOption, match="gets its messages by HTTP: run `outlast serve APP`"):
        SourceLoop(ol.declared_sources["pay"], ol._areceive_jobs)


def test_bad_options_are_refused() -> None:
    cases: list[tuple[str, dict[str, Any], str]] = [
        ("paypal", {"secret": "x"}, "must be one of standard, github, stripe, not 'paypal'"),
        ("github", {}, "must be given, or the name of an environment variable"),
        ("github", {"secret": "a", "secret_env": "B"}, "must be given, or the name"),
        ("github", {"secret": ""}, "must be the text that the sender signs with"),
        ("github", {"secret": ["a", ""]}, "must be the text that the sender signs with"),
        ("github", {"secret": "a", "headers": "x"}, "must be a list of names"),
        ("standard", {"secret": TEXT_SECRET}, "base64"),
        ("stripe", {"secret": "a", "tolerance": 0}, "tolerance"),
        ("stripe", {"secret": "a", "id_header": "x"}, "is for the style github"),
    ]
    for style, given, reason in cases:
        with pytest.raises(InvalidOption, match=re.escape(reason)) as told:
            Http(style, **given)
        assert TEXT_SECRET not in str(told.value)
    assert Http("github", secret="a", redelivery=0, tolerance=50).redelivery == 100


POINTS = ["before insert_jobs", "after insert_jobs", "committed insert_jobs"]


@pytest.mark.parametrize("point", POINTS)
def test_a_sender_that_repeats_until_2xx_has_one_job_wherever_the_service_is_killed(
    database: Database, processes: Processes, point: str
) -> None:
    """R026, R123: before the insert, before the commit, before the response."""
    env = {"OUTLAST_URL": database.url, "OUTLAST_SCHEMA": database.schema}
    ids = iter(f"m{n}" for n in range(1000))
    sent: list[str] = []
    for armed in (f"{point} 3", point, ""):
        process = processes.python("tests.service.hooking", env={**env, "POINT": armed})
        found: Any = eventually(
            lambda p=process: re.search(r"http://127\.0\.0\.1:\d+", p.output()), 30
        )
        pending = [sent[-1]] if sent else []
        while len(sent) < 20:
            id = pending.pop() if pending else next(ids)
            sent += [id] if id not in sent else []
            body = body_of(id)
            try:
                told = httpx.post(
                    f"{found[0]}/hooks/pay", content=body, headers=signed("stripe", id, body),
                    timeout=30, trust_env=False,
                )  # fmt: skip
            except httpx.TransportError:
                break  # it was killed: the next one gets it again
            assert told.status_code == 204, told.text
        if armed:
            assert process.wait(30) == -9, process.output()
        else:
            process.terminate()
            process.wait(30)
    with Outlast(database.url, schema=database.schema) as ol:
        assert sorted(job.key or "" for job in ol.jobs(limit=100)) == sorted(
            f"in:pay:{id}" for id in sent
        )
