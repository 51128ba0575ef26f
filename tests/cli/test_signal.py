"""`outlast signal`: a value for a job that waits, from the command line."""

from __future__ import annotations

from outlast import Context, Outlast
from outlast.model.wait import Wait, WaitKind
from outlast.ops.finish import finish
from tests.cli.conftest import Commands
from tests.store.jobs import ending, take


def parked(ol: Outlast) -> str:
    """A job whose handler waits for a signal."""

    @ol.task
    def asks(ctx: Context) -> None: ...

    job = asks.enqueue()
    (claim,) = take(ol.store.run)
    wait = Wait("approval", WaitKind.SIGNAL, ("approval",), 3600.0)
    ol.store.run(finish, [ending(claim, "waited", wait=wait)])
    return job.id


def test_a_signal_is_sent_and_the_job_shows_it(run: Commands, ol: Outlast) -> None:
    """R246, R247: what it waits for, since when, how long, and who answered."""
    id = parked(ol)
    why = run("job", id).out
    assert "waiting for signal approval since " in why and "times out at" in why
    told = run("signal", id, "approval", '{"ok": true}', "--key", "k", "--json").json
    assert told == {"job": id, "signal": "approval", "new": True, "woken": True}
    assert "kept once" in run("signal", id, "approval", '{"ok": true}', "--key", "k").out
    assert "kept for the job" in run("signal", id, "other").out
    shown = run("job", id, "--json").json
    assert [one["name"] for one in shown["signals"]] == ["approval", "other"]
    assert shown["waits"][0]["subjects"] == ["approval"]
    assert shown["waits"][0]["text"].startswith("waited ")
    assert "Waits:" in run("job", id).out and "Signals:" in run("job", id).out


def test_a_signal_that_nobody_takes_is_an_error(run: Commands, ol: Outlast) -> None:
    """R246"""
    id = parked(ol)
    ol.cancel(id)
    late = run("signal", id, "approval")
    assert late.code == 1 and "already cancelled" in late.err
    nobody = run("signal", "01900000-0000-7000-8000-000000000000", "approval")
    assert nobody.code == 1 and "There is no job" in nobody.err
    wrong = run("signal", id, "approval", "{ok}")
    assert wrong.code == 2 and "invalid JSON" in wrong.err


def test_a_link_is_made_shown_and_revoked(run: Commands, ol: Outlast) -> None:
    """R247: its address is printed once; the job's page has its id, state and maker."""
    id = parked(ol)
    choices = ("--choice", "Approve=true", "--choice", "Reject=false")
    made = run("signal-link", id, "approval", *choices, "--expires", "2d", "--json").json
    assert made["address"].startswith("/signal/") and made["signal"] == "approval"
    base = ("--public-url", "https://jobs.example.com/")
    out = run("signal-link", id, "approval", '{"ok": true}', *base).out
    assert out.startswith("https://jobs.example.com/signal/")
    shown = run("job", id, "--json")
    assert [one["state"] for one in shown.json["links"]] == ["good", "good"]
    assert made["address"] not in shown.out
    assert run("revoke-link", made["id"], "--json").json["state"] == "revoked"
    assert "Links:" in run("job", id).out and "revoked" in run("job", id).out
    wrong = run("signal-link", id, "approval", "--choice", "Approve")
    assert wrong.code == 2 and "LABEL=JSON" in wrong.err
    for nobody in ("xyz", id):
        assert run("revoke-link", nobody).code == 1
