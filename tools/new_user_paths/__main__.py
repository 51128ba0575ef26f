"""Time the paths of a new user: from `pip install` to a job that survived kill -9.

    python -m tools.new_user_paths [--path django] [--json]

Each path is a section of a page, followed to the letter in an empty folder: its files and commands,
its `kill -9` in the middle of the job, and its last answer, that the job succeeded on attempt 2. A
command that goes on (…) takes no time of its own, unless the page says what to wait for.
Exit code 1: a page does not lead to its end.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from .follow import PathError, Timed, reader
from .steps import PATHS


def follow(name: str) -> list[Timed]:
    with (
        tempfile.TemporaryDirectory(prefix="outlast-new-user-") as folder,
        reader(Path(folder)) as user,
    ):
        for step in PATHS[name].steps():
            user.do(step)
        return user.timed


def as_text(name: str, timed: Sequence[Timed]) -> str:
    lines = [f"{name}: {PATHS[name].page}"]
    lines += [f"{one.seconds:8.1f}  {one.command}{' …' * one.goes_on}" for one in timed]
    return "\n".join([*lines, f"{total(timed):8.1f}  seconds, {len(timed)} commands"])


def as_data(name: str, timed: Sequence[Timed]) -> dict[str, object]:
    commands = [{"command": one.command, "seconds": round(one.seconds, 2)} for one in timed]
    page = PATHS[name].page
    return {"path": name, "page": page, "seconds": round(total(timed), 2), "commands": commands}


def total(timed: Sequence[Timed]) -> float:
    return sum(one.seconds for one in timed)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.new_user_paths", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--path", choices=PATHS, action="append", help="default: all of them")
    parser.add_argument("--json", action="store_true", help="one line of JSON for each path")
    options = parser.parse_args(arguments)
    failed = False
    for name in options.path or PATHS:
        try:
            timed = follow(name)
        except PathError as error:
            failed = True
            print(f"{name}: {PATHS[name].page}: {error}", file=sys.stderr, flush=True)
            continue
        report = json.dumps(as_data(name, timed)) if options.json else as_text(name, timed)
        print(report, flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
