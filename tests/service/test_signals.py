"""Signals from outside: by the API with the scope `signal`, and by one-time links."""

from __future__ import annotations

import logging
from enum import Enum
from typing import Any

import httpx
import pytest
from pydantic import BaseModel

from outlast import Context, InvalidSetting, Outlast, Task
from outlast.model.signal_link import LINK_CHARS
from outlast.ops.wait_report import signals
from tests.service.serving import Served

pytestmark = pytest.mark.kinds("sqlite", "postgres")

FORM = {"content-type": "application/x-www-form-urlencoded"}


class Mood(Enum):
    GOOD = "good"
    BAD = "bad"


class Decision(BaseModel):
    ok: bool
    amount: int
    mood: Mood | None = None
    note: str = ""


@pytest.fixture
def refund(served: Served) -> Task[..., Any]:
    @served.ol.task(name="refund", signals={"approval": Decision, "plain": bool})
    def refund(ctx: Context) -> None: ...

    return refund


def sent(ol: Outlast, id: str) -> list[tuple[str, str | None, str | None]]:
    return [(one.name, one.key, one.sent_by) for one in ol.store.run(signals, id)]


def test_a_signal_by_the_api_is_kept_once_checked_and_on_record(
    served: Served, refund: Task[..., Any]
) -> None:
    """R247: key in the body or the header; another value under it, an ended or unknown job, a
    value of another type and another name are refused, and nothing is kept."""
    job, ol = refund.enqueue(), served.ol
    token, path = served.token("signal", name="shop"), f"/api/v1/jobs/{job.id}/signals"
    body = {"value": {"ok": True, "amount": 3}}
    for times in range(2):
        answer = served.post(f"{path}/approval", token, json=body, headers={"idempotency-key": "k"})
        new = not times
        assert answer.json() == {"job": job.id, "signal": "approval", "new": new, "woken": False}
    other = {"value": {"ok": False, "amount": 3}, "key": "k"}
    assert served.post(f"{path}/approval", token, json=other).status_code == 409
    both = served.post(f"{path}/plain", token, json=other, headers={"idempotency-key": "l"})
    assert both.status_code == 422
    wrong = served.post(f"{path}/approval", token, json={"value": {"ok": 5}})
    assert wrong.status_code == 422 and len(wrong.json()["problems"]) == 2
    assert served.post(f"{path}/other", token, json={"value": 1}).status_code == 422
    missing = "/api/v1/jobs/0198c1f2-7d1e-7c3a-9f65-2b1f0c3d4e5f/signals/approval"
    assert served.post(missing, token, json=body).status_code == 404
    [(name, key, by)] = sent(ol, job.id)
    assert (name, key) == ("approval", "k") and by is not None and by.startswith("token shop (")
    _, told = ol.history(job.id)
    assert [one.data["by"] for one in told if one.kind == "signal"] == [by]
    ol.cancel(job.id)
    assert served.post(f"{path}/plain", token, json={"value": True}).status_code == 409


def opened(served: Served, path: str) -> httpx.Response:
    return served.get(path, headers={"accept": "text/html"})


def test_a_link_sends_its_signal_once_and_a_get_sends_nothing(
    served: Served, refund: Task[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    """R247: scanners of mail fetch addresses; the second use is refused with a clear page; the
    address is in no log, and is no referrer."""
    served.token("admin")  # every other call needs a token from now on
    caplog.set_level(logging.DEBUG)
    ol, job = served.ol, refund.enqueue()
    link = ol.signal_link(job, "plain", choices={"Yes": True, "<No>": False}, text="Pay <70>?")
    for method in ("GET", "HEAD", "GET"):
        page = served.call(method, link.path)
        assert page.status_code == 200 and sent(ol, job.id) == []
    assert "Pay &lt;70&gt;?" in page.text and "&lt;No&gt;" in page.text
    assert page.headers["referrer-policy"] == "no-referrer"
    assert page.headers["cache-control"] == "no-store"
    assert served.post(link.path, data={"choice": "2"}).status_code == 422
    done = served.post(link.path, data={"choice": "1"}, headers={"origin": "null"})
    assert done.status_code == 200 and "was sent" in done.text
    for method in ("POST", "GET"):
        again = served.call(method, link.path)
        assert again.status_code == 410 and "has been used" in again.text
    assert sent(ol, job.id) == [("plain", f"link {link.id}", f"link {link.id}")]
    assert [one.state for one in ol.signal_links(job)] == ["used"]
    _, told = ol.history(job.id)
    kinds = [(one.kind, one.data.get("link")) for one in told if one.kind != "attempt"]
    assert kinds == [("link-created", link.id), ("signal", None)]
    ours = [str(one.getMessage()) for one in caplog.records if one.name.startswith("outlast")]
    assert link.path.removeprefix("/signal/") not in f"{ours} {link!r}"


def test_a_revoked_an_expired_and_a_late_link_say_so(
    served: Served, refund: Task[..., Any]
) -> None:
    """R247: by the database's clock, and with the job."""
    ol, job = served.ol, refund.enqueue()
    revoked, late = ol.signal_link(job, "plain", True), ol.signal_link(job, "plain", expires=1e-6)
    ended = ol.signal_link(job.id, "plain", True)
    assert ol.revoke_signal_link(revoked).state == "revoked"
    for link, word in ((revoked, "revoked"), (late, "expired")):
        for method in ("GET", "POST"):
            answer = served.call(method, link.path)
            assert answer.status_code == 410 and word in answer.text
    ol.cancel(job.id)
    assert "ended" in served.post(ended.path).text and sent(ol, job.id) == []


def test_a_guesser_is_slowed_down_and_a_good_link_is_not(
    served: Served, refund: Task[..., Any]
) -> None:
    """R145, R247: wrong addresses are refused by their signature; they delay no good one."""
    link = served.ol.signal_link(refund.enqueue(), "plain", True)
    guesses = served.app.service.settings.guesses
    said = [opened(served, "/signal/" + "x" * LINK_CHARS) for _ in range(guesses + 1)]
    assert [one.status_code for one in said] == [404] * guesses + [429]
    assert "retry-after" in said[-1].headers
    for wrong in ("short", "ü" * LINK_CHARS, "x" * 3000):
        assert opened(served, f"/signal/{wrong}").status_code in (404, 429)
    assert served.post(link.path).status_code == 200


def test_a_link_without_a_value_is_a_form_of_the_declared_type(
    served: Served, refund: Task[..., Any]
) -> None:
    """R247: wrong input is told and nothing is sent; a truth value is two buttons."""
    ol, job = served.ol, refund.enqueue()
    link, plain = ol.signal_link(job, "approval"), ol.signal_link(job, "plain")
    page = opened(served, link.path).text
    assert all(f'name="field.{name}"' in page for name in ("ok", "amount", "mood", "note"))
    assert "Yes</button>" in opened(served, plain.path).text
    wrong = served.post(link.path, data={"field.ok": "true", "field.amount": "many"})
    assert wrong.status_code == 422 and "whole number" in wrong.text and sent(ol, job.id) == []
    right = {"field.ok": "true", "field.amount": "3", "field.mood": '"bad"', "field.note": ""}
    assert served.post(link.path, data=right).status_code == 200
    assert served.post(plain.path, data={"choice": "1"}).status_code == 200
    values = ol.store.run(lambda: _values(job.id))
    assert values == ['{"ok":true,"amount":3,"mood":"bad"}', "false"]


def _values(id: str) -> Any:
    from outlast.ops.operation import Statement

    found = []
    for name, key in ((one.name, one.key) for one in (yield from signals(id))):
        given = {"job": id, "name": name, "key": key}
        found += [text for (text,) in (yield Statement("signal_of_key", given))]
    return found


def test_the_address_of_a_link_needs_the_public_address(served: Served) -> None:
    """Bad addresses are refused where they are set."""

    @served.ol.task(name="any")
    def any_task() -> None: ...

    link = served.ol.signal_link(any_task.enqueue(), "go")
    with pytest.raises(InvalidSetting, match="OUTLAST_PUBLIC_URL"):
        _ = link.url
    for wrong in ("jobs.example.com", "ftp://x", "https://u:p@x", "https://x/?a=1"):
        with pytest.raises(InvalidSetting, match="public_url"):
            Outlast("sqlite:///never.db", public_url=wrong)
    assert "Send</button>" in opened(served, link.path).text
    assert served.post(link.path).status_code == 200
