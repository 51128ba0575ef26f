"""An environment of its own for each peer, made from PyPI or npm and kept in `.bench/venvs`.

It is made anew when what the peer requires changes; `python -m benchmarks run --fresh` asks them
again. The versions that were found are part of the results.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from benchmarks.contender import Contender
from benchmarks.process import NODE_INSIDE

PIP = ["-m", "pip", "install", "-qq", "--disable-pip-version-check", "--root-user-action=ignore"]
NPM = ["install", "--loglevel=error", "--no-audit", "--no-fund", "--prefix"]


class Missing(Exception):
    """A contender cannot take part, and why."""


def equipped(contender: Contender, folder: Path, fresh: bool = False) -> Contender:
    """The contender with an interpreter that has its library."""
    home = folder / contender.name
    if contender.is_node:
        return _equipped_for_node(contender, home, fresh)
    python = home / "bin" / "python"
    stamp, wanted = home / "requires.json", json.dumps([contender.python, *contender.requires])
    if fresh or not stamp.exists() or stamp.read_text() != wanted:
        shutil.rmtree(home, ignore_errors=True)
        bare = () if contender.requires else ("--without-pip",)
        _run(_interpreter(contender.python), "-m", "venv", *bare, str(home))
        if contender.requires:
            _run(str(python), *PIP, *contender.requires)
        stamp.write_text(wanted)
    return replace(contender, interpreter=str(python))


def _equipped_for_node(contender: Contender, home: Path, fresh: bool) -> Contender:
    """Its file is copied beside its packages, where Node.js looks for them."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        raise Missing("it needs Node.js: there is no node, or no npm, on the path")
    stamp, wanted = home / "requires.json", json.dumps(contender.requires)
    if fresh or not stamp.exists() or stamp.read_text() != wanted:
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        if contender.requires:
            _run(npm, *NPM, str(home), *contender.requires)
        stamp.write_text(wanted)
    for file in (contender.file, NODE_INSIDE):
        shutil.copy(file, home)
    return replace(contender, interpreter=node, file=home / contender.file.name)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise Missing(f"{' '.join(command[:4])} … failed: {said[-1] if said else 'silently'}")


def _interpreter(oldest: str) -> str:
    """This Python if it will do, else the first newer one that runs."""
    if not oldest or sys.version_info >= _numbers(oldest):
        return sys.executable
    for program in _pythons():
        asked = [program, "-c", "import sys; print('.'.join(map(str, sys.version_info[:2])))"]
        said = subprocess.run(asked, capture_output=True, text=True, check=False)
        if not said.returncode and _numbers(said.stdout) >= _numbers(oldest):
            return program
    raise Missing(f"it needs Python {oldest}, and there is none on the path or in pyenv")


def _pythons() -> Iterator[str]:
    """By name, and where pyenv keeps those that are not on the path."""
    names = [f"python3.{minor}" for minor in range(12, 20)]
    yield from (found for name in names if (found := shutil.which(name)))
    pyenv = Path.home() / ".pyenv" / "versions"
    yield from (str(path) for path in sorted(pyenv.glob("3.*/bin/python3")))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.strip().split("."))
