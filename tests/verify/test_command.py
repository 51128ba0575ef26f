"""`outlast verify` as a command: what it says, how it ends, and that it leaves nothing behind."""

from __future__ import annotations

import json
import re
import signal
import sys
from pathlib import Path

import pytest

from tests.support import Database, Process, Processes, eventually
from tests.support.tiers import slow_but
from tests.verify.running import figures, start
from tests.verify.test_crash import left
from tools.mutants import MUTANTS
from tools.mutants.mutation import copy_package


def group(process: Process) -> list[str]:
    """The states of all processes that it started and of itself, without those that are over, or
    killed and only waiting for a disk."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, _, pgrp = (folder / "stat").read_text().rpartition(")")[2].split()[:3]
            if int(pgrp) == process.pid and state not in "ZX" and not is_killed(folder):
                found.append(state)
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def is_killed(folder: Path) -> bool:
    """Whether SIGKILL is pending: it acts as soon as the kernel lets go of the process."""
    pending = re.findall(r"^(?:SigPnd|ShdPnd):\t(\w+)$", (folder / "status").read_text(), re.M)
    return any(int(mask, 16) >> (signal.SIGKILL - 1) & 1 for mask in pending)


def frozen(processes: Processes, database: Database) -> Process:
    """A zombie campaign that has frozen somebody just now."""
    running = start(processes, "zombie", "--url", database.url, "--budget", "60")
    eventually(lambda: "T" in group(running), 30.0, message=running.output)
    return running


@pytest.mark.slow_on("postgres")
@pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")
@pytest.mark.parametrize("number", slow_but([signal.SIGTERM], [signal.SIGINT, signal.SIGTERM]))
def test_whoever_interrupts_it_finds_everything_removed(
    processes: Processes, database: Database, number: int
) -> None:
    """Schemas and files are gone, and so are the processes, frozen ones too."""
    running = frozen(processes, database)
    assert left(database) != []
    running.signal(number)
    assert running.wait(20.0) == 130
    assert "(interrupted)" in running.output()
    assert left(database) == []
    assert group(running) == []


@pytest.mark.kinds("sqlite")
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a child does not hear of it")
def test_frozen_processes_do_not_outlive_a_campaign_that_is_killed(
    processes: Processes, database: Database
) -> None:
    running = frozen(processes, database)
    running.kill()
    eventually(lambda: group(running) == [], message=lambda: str(group(running)))


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a child does not hear of it")
def test_a_child_whose_parent_was_killed_at_its_birth_ends_by_itself(processes: Processes) -> None:
    """The kernel tells of a parent's death only those who asked before it."""
    script = """
    import os
    from outlast.verify.children import die_with_parent
    dead = os.fork() or os._exit(0)
    os.waitpid(dead, 0)
    die_with_parent(os.getppid())
    print("a living parent is fine", flush=True)
    die_with_parent(dead)
    print("not reached", flush=True)
    """
    running = processes.python(script)
    assert running.wait(30.0) == 1
    assert running.output() == "a living parent is fine\n"


@pytest.mark.kinds("sqlite")
def test_every_run_can_be_put_on_record(
    processes: Processes, database: Database, tmp_path: Path
) -> None:
    ledger = tmp_path / "figures" / "ledger.jsonl"
    words = ["--url", database.url, "--points", 4, "--path", "enqueue", "--ledger", ledger]
    start(processes, "crash", *words, "--seed", 5).succeed(60.0)
    start(processes, "crash", *words, "--seed", 6).succeed(60.0)
    first, second = map(json.loads, ledger.read_text().splitlines())
    assert (first["seed"], second["seed"]) == (5, 6)
    assert first["kills"] >= 4
    assert {"at", "campaign", "url", "seconds", "violations", "outlast", "python"} <= first.keys()


@pytest.mark.kinds("postgres")
def test_no_password_is_told(processes: Processes, database: Database, tmp_path: Path) -> None:
    """R198: not in the table, not in JSON, not on record."""
    ledger = tmp_path / "ledger.jsonl"
    url = database.url.replace("postgres@", "postgres:s3cret@")
    words = ["--url", url, "--points", 2, "--path", "enqueue", "--ledger", ledger, "--json"]
    said = start(processes, "crash", *words).succeed(60.0)
    assert figures(said)["url"] == database.url
    assert "s3cret" not in said + ledger.read_text()


@pytest.mark.kinds("sqlite")
def test_what_is_wrong_is_told_with_the_command_that_shows_it_again(
    processes: Processes, database: Database, tmp_path: Path
) -> None:
    """R207: on a copy that finishes jobs before their handlers."""
    (mutant,) = [mutant for mutant in MUTANTS if mutant.name == "finish-before-handler"]
    copy = copy_package(mutant, tmp_path / "copy")
    words = ["--url", database.url, "--seed", 3, "--points", 4, "--path", "enqueue"]
    broken = processes.python(
        "outlast", "verify", "crash", *words, env={"PYTHONPATH": str(copy)}, cwd=tmp_path
    )
    assert broken.wait(60.0) == 1
    said = broken.output()
    assert "I3 unstarted" in said
    assert f"Reproduce: outlast verify crash --url {database.url} --seed 3 --path enqueue" in said


@pytest.mark.kinds("sqlite")
@pytest.mark.parametrize(
    ("campaign", "words", "told"),
    [
        ("crash", ["--path", "nowhere"], "must be one of"),
        ("zombie", ["--path", "enqueue"], "must be one of"),
        ("crash", ["--budget", "soon"], "is not a duration"),
    ],
)
def test_what_is_written_wrongly_is_said_at_once(
    processes: Processes, database: Database, campaign: str, words: list[str], told: str
) -> None:
    refused = start(processes, campaign, "--url", database.url, *words)
    assert refused.wait() == 2
    assert told in refused.output()
    assert left(database) == []


@pytest.mark.kinds("sqlite")
def test_a_database_that_is_not_there_is_told_in_one_sentence(
    processes: Processes, tmp_path: Path
) -> None:
    url = "postgresql://postgres:s3cret@127.0.0.1:1/nowhere"
    refused = processes.python(
        "outlast", "verify", "crash", "--url", url, "--points", 1, env={"TMPDIR": str(tmp_path)}
    )
    assert refused.wait(30.0) == 1
    said = refused.output()
    assert said.startswith("outlast: "), said
    assert "Traceback" not in said
    assert "s3cret" not in said
    assert list(tmp_path.glob("outlast-verify-*")) == []
