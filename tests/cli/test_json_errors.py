"""With --json an error is JSON too: one line on standard error, of the same form everywhere."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

from outlast import Outlast
from outlast.cli import commands, outlast
from tests.cli.conftest import Answer, Commands

ID = "0198c1f2-7d1e-7c3a-9f65-2b1f0c3d4e5f"
TIMES = ["--start", "2026-01-02T00:00:00Z", "--end", "2026-01-01T00:00:00Z"]
NO_DATABASE = ["--url", "sqlite:////nowhere/at/all.db"]
BAD_URL = ["--url", "nonsense://x"]
# How each command fails: its arguments, the exit code and the type of its error.
FAILURES: dict[str, list[tuple[list[str], int, str]]] = {
    "migrate": [(BAD_URL, 1, "InvalidSetting")],
    "enqueue": [
        (["t", "--queue", "full"], 1, "QueueFull"),
        (["t", "--priority", "1000"], 2, "InvalidOption"),
        (["t", "--args", "[]"], 2, "BadParameter"),
        (["t", "--app", "no_such_app"], 1, "InvalidOption"),
        (["t", "--debounce", "5"], 2, "InvalidOption"),
        ([], 2, "MissingParameter"),
    ],
    "jobs": [(NO_DATABASE, 1, "NoDatabase"), (["--limit", "x"], 2, "BadParameter")],
    "job": [([ID], 1, "JobNotFound"), (["x"], 1, "JobNotFound")],
    "stream": [([ID], 1, "JobNotFound"), (["x"], 1, "JobNotFound")],
    "dead": [(NO_DATABASE, 1, "NoDatabase")],
    "flows": [(NO_DATABASE, 1, "NoDatabase")],
    "flow": [([ID], 1, "FlowNotFound")],
    "cancel": [([], 2, "UsageError"), (["--flow", ID], 1, "FlowNotFound")],
    "retry": [([], 2, "UsageError"), (["--queue", "a"], 2, "UsageError")],
    "reclaim": [([], 2, "UsageError")],
    "reschedule": [([], 2, "InvalidOption"), (["--delay", "x"], 2, "BadParameter")],
    "prioritize": [(["7"], 2, "UsageError"), (["700"], 2, "BadParameter")],
    "move": [(["x"], 2, "InvalidOption"), ([], 2, "InvalidOption")],
    "forget": [([], 2, "MissingParameter")],
    "signal": [([ID, "ok"], 1, "JobNotFound"), ([ID, "ok", "{"], 2, "BadParameter")],
    "signal-link": [([ID, "ok"], 1, "JobNotFound"), ([ID, "ok", "--choice", "x"], 2, "UsageError")],
    "revoke-link": [([ID], 1, "LinkRefused")],
    "purge": [(["--older", "x"], 2, "BadParameter")],
    "queues": [(NO_DATABASE, 1, "NoDatabase")],
    "pause": [(["a", "--lane", "b"], 2, "InvalidOption")],
    "resume": [(["a", "--lane", "b"], 2, "InvalidOption")],
    "close-breaker": [(["a", *NO_DATABASE], 1, "NoDatabase")],
    "keep": [(["a"], 2, "UsageError")],
    "schedules list": [(["--after", ""], 2, "InvalidOption"), (NO_DATABASE, 1, "NoDatabase")],
    "schedules preview": [(["no_such_app"], 2, "InvalidOption")],
    **{
        f"schedule {verb}": [(["x"], 1, "ScheduleNotFound")]
        for verb in ("show", "pause", "resume", "run", "skip", "reset", "delete")
    },
    "schedule change": [
        (["x"], 2, "InvalidOption"),
        (["x", "--every", "1h"], 1, "ScheduleNotFound"),
    ],
    "schedule backfill": [(["x", *TIMES], 2, "InvalidOption")],
    "limit": [(["a"], 2, "UsageError"), (["a", "--burst", "1"], 2, "InvalidOption")],
    "lanes": [(["a", *NO_DATABASE], 1, "NoDatabase")],
    "workers": [(NO_DATABASE, 1, "NoDatabase")],
    "drain": [(["x"], 1, "WorkerNotFound")],
    "token create": [(["--name", "x", "--scope", "all"], 2, "BadParameter")],
    "token list": [(NO_DATABASE, 1, "NoDatabase")],
    "token revoke": [([ID], 1, "TokenNotFound")],
    "doctor": [(BAD_URL, 1, "InvalidSetting")],
    "top": [(["--once", *NO_DATABASE], 1, "NoDatabase")],
    "sql": [(["no_such_statement"], 2, "UsageError")],
    "events": [(NO_DATABASE, 1, "NoDatabase")],
    "outboxes": [(NO_DATABASE, 1, "NoDatabase")],
    "sources": [(NO_DATABASE, 1, "NoDatabase")],
    "demo": [(BAD_URL, 1, "InvalidSetting")],
    "bench": [(["--cell", "nothing"], 2, "BadParameter")],
}
CAMPAIGN = [(["--seed", "x"], 2, "BadParameter")]  # each has this option


def with_json() -> list[str]:
    options = {name: {o for p in one.params for o in p.opts} for name, one in commands().items()}
    return [name for name, found in options.items() if "--json" in found]


def error_of(answer: Answer) -> dict[str, Any]:
    """The error of a command that failed: the last line, and nothing on standard output."""
    assert answer.out == ""
    said = json.loads(answer.err.splitlines()[-1])
    assert said.keys() == {"error"} and said["error"].keys() == {"type", "message"}
    assert said["error"]["message"] and "outlast: " not in answer.err
    return dict(said["error"])


@pytest.mark.kinds("sqlite")
@pytest.mark.parametrize("name", with_json())
def test_every_error_of_a_command_with_json_is_json(name: str, run: Commands, ol: Outlast) -> None:
    """Each command that has the option, in the ways in which it fails by itself; and an option
    that it does not have."""
    ol.queue("full", most_waiting=1, overflow="refuse")
    ol._declare_queues()
    run("enqueue", "t", "--queue", "full")
    failures = FAILURES.get(name) or CAMPAIGN
    for arguments, code, kind in [*failures, (["--nonsense"], 2, "NoSuchOption")]:
        answer = run(*name.split(), *arguments, "--json")
        assert answer.code == code, (arguments, answer)
        assert error_of(answer)["type"] == kind, arguments
        plain = run(*name.split(), *arguments)
        assert plain.code == code and not plain.err.startswith("{"), arguments


@pytest.mark.kinds("sqlite")
def test_errors_of_single_jobs_are_in_the_answer(run: Commands) -> None:
    """One that is not found does not keep the others from being told."""
    for command in ("cancel", "retry", "reclaim", "forget"):
        answer = run(command, ID, "--json")
        [told] = json.loads(answer.out)
        assert answer.code == 1 and answer.err == ""
        assert told["error"]["type"] == "JobNotFound"


def test_an_error_before_the_command_is_json_too() -> None:
    refused = {
        "NoSuchOption": ["--nonsense", "jobs", "--json"],
        "UsageError": ["nonsense", "--json"],
    }
    for kind, arguments in refused.items():
        result = CliRunner().invoke(outlast, arguments)
        assert (result.exit_code, result.stdout) == (2, "")
        assert json.loads(result.stderr)["error"]["type"] == kind


def test_words_after_two_dashes_are_no_options(run: Commands) -> None:
    assert run("job", "--", "--json").err.startswith("outlast: ")


@pytest.mark.kinds("sqlite")
def test_a_question_that_is_answered_with_no_is_json_too(
    run: Commands, ol: Outlast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outlast.cli.job_actions.is_terminal", lambda: True)
    run("enqueue", "t")
    answer = run("prioritize", "7", "--json", input="n\n")
    assert (answer.code, answer.out) == (1, "")
    assert json.loads(answer.err.splitlines()[-1])["error"]["type"] == "Abort"
    assert ol.jobs()[0].priority == 0
