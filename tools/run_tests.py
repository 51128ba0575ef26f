"""Run the tests: most of them side by side, then those marked `quiet`, two at a time.

With `--slow`, those marked `slow`, and no others, in the same way.

A quiet test measures time or runs a campaign with deadlines of its own; beside many other tests on
two cores it would measure them. The first run of a test decides. Failed tests run once more, alone,
for diagnosis only: the result is printed and kept in failed-tests.log.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PYTEST = [sys.executable, "-m", "pytest"]

# Some tests wait for a process or a lease, so a core has more than one. With four for a core, none
# was ever idle, and tests with a lease lost it.
# Each has a part of the files, in the order of tests/conftest.py; who is done takes from another.
PROCESSES = str(5 * min(os.cpu_count() or 2, 4) // 2)
SIDE_BY_SIDE = ["-n", PROCESSES, "--dist", "worksteal"]
QUIET = ["-n", "2", "--dist", "load", "--maxschedchunk", "1"]  # most of them wait for a lease

# The tiers of `make test` and `make slow`. Campaigns have their own command.
DEFAULT, SLOW = "not slow and not campaign", "slow and not campaign"

DIAGNOSIS = Path("failed-tests.log")
PASSED, FAILED, NO_TESTS = 0, 1, 5


def main(arguments: list[str]) -> int:
    """The exit code of pytest: of the first run that failed, if any did."""
    slow = "--slow" in arguments
    given = [argument for argument in arguments if argument != "--slow"]
    tier = SLOW if slow else DEFAULT
    codes = [
        _pytest(*SIDE_BY_SIDE, "-m", f"{tier} and not quiet", *given),
        _pytest(*QUIET, "-m", f"{tier} and quiet", *given, *_quiet_files(given)),
    ]
    if FAILED in codes:
        _diagnose()
    failures = [code for code in codes if code not in (PASSED, NO_TESTS)]
    return failures[0] if failures else min(codes)


def _quiet_files(given: list[str]) -> list[str]:
    """Those with quiet tests, unless files were named: to collect all of them takes longer than
    most quiet tests. Which tests are slow, no file says alone: see tests/conftest.py."""
    if any(Path(argument.partition("::")[0]).exists() for argument in given):
        return []
    files = sorted(Path("tests").rglob("test_*.py"))
    return [str(file) for file in files if "mark.quiet" in file.read_text("utf-8")]


def _pytest(*arguments: str) -> int:
    return subprocess.run([*PYTEST, *arguments], check=False, env=_environment()).returncode


def _environment() -> dict[str, str]:
    """Tests start thousands of processes; each is not to compile the package anew."""
    return {name: v for name, v in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def _diagnose() -> None:
    print(f"The failed tests again, alone, for diagnosis (kept in {DIAGNOSIS}):", flush=True)
    alone = ["--last-failed", "--last-failed-no-failures", "none", "-m", "not campaign"]
    again = [*PYTEST, *alone, "-q", "-rpfE"]
    ran = subprocess.run(again, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    DIAGNOSIS.write_bytes(ran.stdout)
    print(ran.stdout.decode(errors="replace"), flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
