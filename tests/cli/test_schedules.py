"""Schedules from the command line."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from textwrap import dedent

import pytest

from outlast import Outlast
from tests.cli.conftest import Commands

APP = """
    from outlast import Outlast

    ol = Outlast("sqlite:///nowhere.db")

    @ol.task(cron="30 2 * * *", tz="Europe/Berlin")
    def report() -> None: ...
"""


def test_schedules_are_previewed_without_a_database(
    run: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R234"""
    (tmp_path / "previewed.py").write_text(dedent(APP))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    [shown] = run("schedules", "preview", "previewed:ol", "--json").json
    assert (shown["name"], shown["cron"], len(shown["next_runs"])) == ("report", "30 2 * * *", 10)
    assert "report: 30 2 * * * Europe/Berlin" in run("schedules", "preview", "previewed:ol").out
    assert not (tmp_path / "nowhere.db").exists()


def test_a_schedule_is_shown_and_operated(run: Commands, ol: Outlast) -> None:
    """R234"""

    @ol.task
    def report() -> None: ...

    assert run("schedules").out == "No schedules.\n"
    ol.create_schedule("nightly", report.job(), cron="0 3 * * *")
    [listed] = run("schedules", "--json").json
    assert (listed["name"], listed["cron"]) == ("nightly", "0 3 * * *")
    paused = run("schedule", "pause", "nightly", "--reason", "year-end\x1b[2J", "--json").json
    assert paused["pause_reason"].startswith("year-end")
    assert "\x1b" not in run("schedule", "nightly").out
    assert run("schedule", "resume", "nightly").out.startswith("nightly: 0 3 * * * UTC, active")
    job = run("schedule", "run", "nightly", "--json").json
    assert run("schedule", "skip", "nightly", "-n", 2, "--json").json["skipped"] == 2
    changed = run("schedule", "change", "nightly", "--every", "2h", "--json").json
    assert (changed["cron"], changed["every"]) == (None, 7200.0)
    spans = ["--start", "2026-01-01T00:00:00Z", "--end", "2026-01-01T08:00:00Z"]
    assert run("schedule", "backfill", "nightly", *spans).out == "nightly: 4 jobs enqueued.\n"
    report_ = run("schedule", "nightly", "--json").json
    assert len(report_["next_runs"]) == 10
    assert [one["id"] for one in report_["history"]] == [job["id"]]
    assert [one["action"] for one in report_["actions"]] == [
        "backfill", "change", "skip", "run", "resume", "pause", "create",
    ]  # fmt: skip
    assert run("schedule", "reset", "nightly").code == 0
    assert run("schedule", "delete", "nightly").out == "nightly is deleted.\n"
    assert run("schedule", "nightly").code == 1
    assert run("schedule", "change", "nightly", "--cron", "x").code != 0


def test_schedules_are_listed_a_page_at_a_time(run: Commands, ol: Outlast) -> None:
    """R166: with the number of all, and how to go on."""

    @ol.task
    def report() -> None: ...

    for number in range(7):
        ol.create_schedule(f"run {number}", report.job(), every=3600)
    first = run("schedules", "--limit", 3)
    assert first.out.count("run ") == 3
    assert first.err == "3 of 7 schedules; continue with --after 'run 2'\n"
    last = run("schedules", "list", "--limit", 4, "--after", "run 2", "--json")
    assert [one["name"] for one in last.json] == [f"run {n}" for n in range(3, 7)]
    assert last.err == ""
    assert run("schedules", "--limit", 0).code == 2


def test_a_job_says_which_schedule_made_it(run: Commands, ol: Outlast) -> None:
    """R234: and for which tick, or that an operator started it."""

    @ol.task
    def report() -> None: ...

    ol.create_schedule("nightly", report.job(), every="1h")
    manual, plain = ol.run_schedule("nightly"), report.enqueue()
    end = datetime.now(UTC)
    [ticked] = ol.backfill_schedule("nightly", end - timedelta(hours=1), end)
    assert ticked.key is not None
    tick = ticked.key.rpartition("nightly:")[2]
    assert f"nightly, tick {tick}" in run("job", ticked.id).out
    shown = run("job", ticked.id, "--json").json["schedule"]
    assert (shown["schedule"], shown["manual"]) == ("nightly", False)
    assert datetime.fromisoformat(shown["tick"]) == datetime.fromisoformat(tick)
    assert "nightly, started by an operator at" in run("job", manual.id).out
    assert run("job", manual.id, "--json").json["schedule"]["manual"] is True
    assert "schedule" not in run("job", plain.id).out
    assert run("job", plain.id, "--json").json["schedule"] is None
