"""Every action asks once, is on record, and says what it did."""

from __future__ import annotations

import pytest

from outlast.ops.report import paused
from tests.service.dashboard.looking import Browser
from tests.service.serving import Served
from tests.store.jobs import put, table
from tests.support import Database


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
