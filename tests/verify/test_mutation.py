"""The tester is tested: a protocol that is broken on purpose does not get away with it."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from outlast.verify.scenarios import SCENARIOS
from tests.support import Process, Processes, eventually
from tests.support.processes import ROOT
from tests.verify.running import figures
from tools.mutants import MUTANTS
from tools.mutants.mutation import (
    PACKAGE,
    POSTGRES,
    SQLITE,
    Edit,
    Mutant,
    OutdatedMutant,
    RunOptions,
    check,
    copy_package,
)
from tools.mutants.mutation_run import GOALS, MutationResults, MutationRun, campaign_runs

NAMED = {mutant.name: mutant for mutant in MUTANTS}
# Kills and zombies, steps, callers and flows, on either database.
AT_ONCE = [
    "finish-before-handler",
    "completing-though-lost",
    "own-connection",
    "dead-not-passed-on",
]
HARMLESS = Mutant(
    "harmless",
    "a comment is another one",
    [Edit("ops/claim.py", "RETURNING promises no order", "RETURNING promises nothing")],
    paths=("enqueue",),
    points=2,
)
MUTATION_RUN_S = 280.0


def mutants(processes: Processes, *words: object, **how: object) -> Process:
    return processes.python("tools.mutants", *words, **how)


def run(mutant: Mutant, request: pytest.FixtureRequest) -> MutationResults:
    url = None
    if mutant.store == POSTGRES:
        url = request.getfixturevalue("postgres_url").url
    return MutationRun([mutant], RunOptions(url=url)).run()


def slow_param(name: str) -> object:
    return pytest.param(name, marks=pytest.mark.slow)


@pytest.mark.timeout(300)  # baseline and mutant, each with a budget of a minute, and their starts
@pytest.mark.parametrize("name", [AT_ONCE[0], *map(slow_param, AT_ONCE[1:])])
def test_a_broken_protocol_is_noticed(name: str, request: pytest.FixtureRequest) -> None:
    """R207: with the net removed, the campaign is red; with it, the same points are green."""
    results = run(NAMED[name], request)
    assert results.unsound == []
    [result] = results.results
    assert result.caught, result
    assert result.told.startswith("I"), result
    assert results.passed


@pytest.mark.campaign
@pytest.mark.parametrize("name", [name for name in NAMED if name not in AT_ONCE])
def test_every_other_one_too(name: str, request: pytest.FixtureRequest) -> None:
    """R207: a sample runs always, the others with the campaigns."""
    results = run(NAMED[name], request)
    assert results.passed, results


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_mutant_changes_the_source_as_it_is(mutant: Mutant) -> None:
    """R207: a mutant whose words are gone would be the source itself."""
    check(mutant)
    assert all(edit.old != edit.new for edit in mutant.edits)
    assert set(mutant.paths) <= set(SCENARIOS)
    assert {SCENARIOS[path].only_store for path in mutant.paths} <= {None, mutant.store}


def test_there_are_enough_of_them() -> None:
    """R207: at least 25, each with a name of its own, and some on each database."""
    assert len(NAMED) == len(MUTANTS) >= 25
    assert {mutant.store for mutant in MUTANTS} == {SQLITE, POSTGRES}
    assert {mutant.campaign for mutant in MUTANTS} == set(GOALS)


def test_the_baseline_runs_a_campaign_once_with_the_most_points() -> None:
    first, second = NAMED["reclaim-resets-attempts"], NAMED["crashes-uncounted"]
    [baseline] = campaign_runs([first, second])
    assert baseline.points == max(first.points, second.points)


def test_a_mutant_that_changes_nothing_is_refused(tmp_path: Path) -> None:
    gone = Mutant("none", "", [Edit("ops/finish.py", "words that are not there", "")])
    with pytest.raises(OutdatedMutant, match=r"out of date: .* has this text 0 times"):
        copy_package(gone, tmp_path)


def test_a_copy_is_mutated_and_the_source_is_not(tmp_path: Path) -> None:
    mutant = NAMED["lease-by-workers-clock"]
    copy = copy_package(mutant, tmp_path) / "outlast"
    for edit in mutant.edits:
        assert edit.new in (copy / edit.file).read_text()
        assert edit.old in (PACKAGE / edit.file).read_text()


# The command


@pytest.mark.slow
def test_each_hunt_is_told_and_put_on_record(processes: Processes, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.jsonl"
    only = ["--only", "key-ignored", "--only", "key-ignored", "--only", "own-connection"]
    said = mutants(processes, *only, "--json", "--ledger", ledger, env={"OUTLAST_URL": ""})
    found = figures(said.succeed(MUTATION_RUN_S))
    assert (found["mutants"], found["caught"], found["left_out"]) == (1, 1, 1)
    [hunted] = found["hunts"]
    assert hunted["mutant"] == "key-ignored"
    assert hunted["told"].startswith(("I1", "I2"))
    [line] = map(json.loads, ledger.read_text().splitlines())
    assert (line["campaign"], line["caught"], line["survived"]) == ("mutants", 1, [])


@pytest.mark.slow
def test_a_survivor_is_told_and_the_exit_code_says_so(processes: Processes) -> None:
    """Whoever catches everything has caught nothing."""
    said = processes.python("""
        from tests.verify.test_mutation import HARMLESS
        from tools.mutants import MUTANTS
        from tools.mutants.__main__ import main
        MUTANTS.append(HARMLESS)
        main(["--only", "harmless"])
    """)
    assert said.wait(MUTATION_RUN_S) == 1
    assert "0 of 1 mutant caught" in said.output()
    assert "harmless survived: a comment is another one." in said.output()


@pytest.mark.slow
def test_what_fails_without_a_mutant_catches_none(processes: Processes, tmp_path: Path) -> None:
    """Run from a copy that is broken itself: that its mutants are noticed shows nothing."""
    copy = copy_package(NAMED["finish-before-handler"], tmp_path / "copy")
    only = ["--only", "key-ignored"]
    said = mutants(processes, *only, env={"PYTHONPATH": f"{copy}:{ROOT}"}, cwd=tmp_path)
    assert said.wait(MUTATION_RUN_S) == 1
    assert "Violation without a mutant: crash on sqlite: enqueue-key: I3" in said.output()
    assert "0 of 1 mutant caught" in said.output()


def test_words_that_are_gone_are_told_at_once(processes: Processes, tmp_path: Path) -> None:
    copy = copy_package(NAMED["key-ignored"], tmp_path / "copy")
    only = ["--only", "key-ignored"]
    said = mutants(processes, *only, env={"PYTHONPATH": f"{copy}:{ROOT}"}, cwd=tmp_path)
    assert said.wait(30.0) == 1
    assert "outlast: the mutant key-ignored is out of date: model/task.py" in said.output()


def test_a_name_that_no_mutant_has_is_refused(processes: Processes) -> None:
    said = mutants(processes, "--only", "nobody")
    assert said.wait(30.0) == 2
    assert "no mutant 'nobody'; known: quota-counts-apart," in said.output()


def test_whoever_interrupts_it_finds_nothing_left(processes: Processes, tmp_path: Path) -> None:
    running = mutants(processes, "--only", "nobody-reclaims", env={"TMPDIR": str(tmp_path)})
    eventually(lambda: list(tmp_path.glob("outlast-verify-*")), 60.0, message=running.output)
    running.signal(signal.SIGTERM)
    assert running.wait(60.0) == 130
    assert "(interrupted)" in running.output()
    assert list(tmp_path.glob("outlast-*")) == []
