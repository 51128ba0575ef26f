"""People who answer jobs that wait, and who read what a job streams."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import BaseModel

from outlast import Context
from outlast.model.claim import Claim
from outlast.model.wait import Wait, WaitKind
from outlast.ops.finish import finish
from outlast.ops.streams import store_stream
from tests.browser.visiting import Visitor
from tests.store.jobs import end, ending, put_and_take, take
from tests.support import Proxy

NASTY = "<img src=x onerror='window.pwned=1'>"


class Decision(BaseModel):
    ok: bool
    amount: int
    note: str = ""


def parked(visitor: Visitor, name: str) -> str:
    """A job whose handler waits for a decision."""
    ol = visitor.served.ol

    @ol.task(name=name, queue=name, signals={"approval": Decision})
    def refund(ctx: Context) -> None: ...

    job = refund.enqueue()
    (claim,) = take(ol.store.run, queue=name)
    wait = Wait("approval", WaitKind.SIGNAL, ("approval",), 3600.0)
    ol.store.run(finish, [ending(claim, "waited", wait=wait)])
    return job.id


def values(visitor: Visitor) -> list[Any]:
    rows = visitor.database.rows("SELECT value FROM outlast_signal ORDER BY seq")
    return [json.loads(value) for (value,) in rows]


@pytest.mark.slow
def test_a_link_is_answered_by_a_button_and_works_once(visitor: Visitor) -> None:
    """R247: without a login or a script; the second visit says that the link is used."""
    ol, job, before = visitor.served.ol, parked(visitor, "by-link"), len(values(visitor))
    choices = {
        "Approve": Decision(ok=True, amount=70).model_dump(),
        NASTY: Decision(ok=False, amount=0).model_dump(),
    }
    link = ol.signal_link(job, "approval", choices=choices, text=f"Pay back 70? {NASTY}")
    address = visitor.served.url + link.path
    for script in (True, False):  # whoever only looks sends nothing
        context = visitor.browser.new_context(java_script_enabled=script)
        page = context.new_page()
        assert page.goto(address).status == 200
        assert page.inner_text("h1") == "approval"
        assert NASTY in page.inner_text(".message")
        assert page.locator("form button").all_inner_texts() == ["Approve", NASTY]
        assert len(values(visitor)) == before
        if script:
            assert page.evaluate("window.pwned ?? null") is None
            context.close()
    page.click("text=Approve")
    assert "was sent" in page.inner_text("[role=status]")
    assert values(visitor)[before:] == [choices["Approve"]]
    again = page.goto(address)
    assert (again.status, page.locator("form").count()) == (410, 0)
    assert "has been used" in page.inner_text("[role=status]")
    assert len(values(visitor)) == before + 1
    assert ol.job(job).state == "ready"
    context.close()


@pytest.mark.slow
def test_a_job_is_answered_by_a_form_of_its_signal_s_type(visitor: Visitor) -> None:
    """R247: what is wrong is said, and nothing is sent; then the job goes on."""
    ol, job, before = visitor.served.ol, parked(visitor, "by-form"), len(values(visitor))
    page = visitor.visit(f"/jobs/{job}")
    assert "Waiting for approval since" in page.inner_text("#answer-title")
    form = page.locator("#answer form")
    form.get_by_label("Ok").select_option(label="Yes")
    form.get_by_label("Amount").fill("many")
    form.get_by_label("Note").fill(NASTY)
    form.get_by_role("button").click()
    assert "a whole number" in page.inner_text(".flash-refused")
    assert len(values(visitor)) == before
    form.get_by_label("Ok").select_option(label="Yes")
    form.get_by_label("Amount").fill("70")
    form.get_by_label("Note").fill(NASTY)
    form.get_by_role("button").click()
    assert "approval was sent." in page.inner_text(".flash-done")
    assert page.locator("#answer").count() == 0, "nobody is asked any more"
    assert values(visitor)[before:] == [{"ok": True, "amount": 70, "note": NASTY}]
    assert ol.job(job).state == "ready"
    assert visitor.executed(page) == []


def stream(visitor: Visitor, claim: Claim, n: int, *items: Any) -> None:
    """Store output, as the claim's worker does."""
    data = json.dumps(list(items))
    row = {"job": claim.id, **claim.guard, "n": n, "data": data, "first": n == 0}
    assert visitor.served.ol.store.run(store_stream, [row], 1000) == 1


@pytest.mark.slow
def test_output_appears_while_the_job_runs(visitor: Visitor) -> None:
    """R248, R135: each chunk once and in order, with the connection cut between them; another
    attempt is marked, markup is text, and the cut-off is told."""
    run = visitor.served.ol.store.run
    claim = put_and_take(run, queue="output")
    stream(visitor, claim, 0, "before ")
    host, port = visitor.served.url.removeprefix("http://").split(":")
    with Proxy((host, int(port))) as proxy:
        page = visitor.open(base=f"http://{proxy.host}:{proxy.port}")
        visitor.visit(f"/jobs/{claim.id}", page)
        for n, word in enumerate(("one ", NASTY, "three "), 1):
            stream(visitor, claim, n, word)
            page.locator("#output", has_text=word).wait_for()
            proxy.cut()
        end(run, claim, "released")
        (again,) = take(run, queue="output")
        stream(visitor, again, 0, {"tool": NASTY})
        stream(visitor, again, 1, "x" * 1000)
        page.locator("#output .mark", has_text="cut off").wait_for()
        shown = page.locator("#output span").all_inner_texts()
        end(run, again)
        page.wait_for_selector("#standing .state-succeeded")
    assert "".join(shown[1:]).startswith(f"before one {NASTY}three attempt")
    value = json.dumps({"tool": NASTY}, separators=(",", ":"))
    assert [shown[0], *shown[5:]] == ["attempt 1", "attempt 1", value, shown[-1]]
    assert visitor.executed(page) == []
    finished = visitor.visit(f"/jobs/{claim.id}").locator("#output")
    assert "three" in finished.inner_text(), "it stays when the job has ended"
