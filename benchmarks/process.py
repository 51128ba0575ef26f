"""A contender's process as the runner sees it: started, asked, killed.

The other end is serve.py, or serve.mjs. A process that is not asked any more ends by itself,
because its standard input does: none outlives the runner.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import benchmarks
import outlast
from benchmarks.contender import NODE, PEER, Contender
from benchmarks.serve import PLACE, Place

INSIDE = Path(__file__).with_name("serve.py")
NODE_INSIDE = INSIDE.with_suffix(NODE)
IMPORTABLE = [str(Path(package.__file__ or "").parents[1]) for package in (outlast, benchmarks)]
MAX_ANSWER_S = 600.0


class Failed(Exception):
    """A contender did not do what it said it can."""


class Process:
    def __init__(self, contender: Contender, place: Place) -> None:
        self._log = Path(place.folder) / f"{contender.name}.log"
        self.started_at = time.monotonic()
        with self._log.open("ab") as log:
            self._popen = subprocess.Popen(
                _command(contender),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=place.folder,
                env={**_environment(contender), PLACE: json.dumps(asdict(place))},
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._popen.pid

    def ask(self, do: str, **arguments: Any) -> Any:
        self.tell(do, **arguments)
        return self.answer()

    def tell(self, do: str, **arguments: Any) -> None:
        assert self._popen.stdin is not None
        with suppress(BrokenPipeError):  # it ended, which the answer will say
            self._popen.stdin.write(json.dumps({"do": do, **arguments}).encode() + b"\n")
            self._popen.stdin.flush()

    def answer(self, patience: float = MAX_ANSWER_S) -> Any:
        assert self._popen.stdout is not None
        if not select.select([self._popen.stdout], [], [], patience)[0]:
            raise Failed(f"no answer within {patience:g} s: {self.said()}")
        line = self._popen.stdout.readline()
        if not line:
            raise Failed(f"it ended: {self.said()}")
        answer = json.loads(line)
        if "error" in answer:
            raise Failed(answer["error"])
        return answer["ok"]

    def kill(self) -> None:
        """Without warning, with all that it started."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.let_go()
        assert self._popen.stdout is not None
        self._popen.stdout.close()
        self._popen.wait()

    def let_go(self) -> None:
        """Ask nothing more: it ends."""
        assert self._popen.stdin is not None
        with suppress(BrokenPipeError):
            self._popen.stdin.close()

    def said(self, lines: int = 3) -> str:
        """The end of its log, for when something is wrong."""
        return " | ".join(self._log.read_text(errors="replace").split("\n")[-lines - 1 : -1])


def _command(contender: Contender) -> list[str | Path]:
    if contender.is_node:  # imports are looked for beside a file: both are in its environment
        inside = contender.file.with_name(NODE_INSIDE.name)
        return [contender.interpreter, inside, contender.file]
    # -P: serve.py's own folder is no place where a contender's imports are looked for.
    return [contender.interpreter, "-P", INSIDE, contender.file]


def _environment(contender: Contender) -> dict[str, str]:
    """Ours import this very package; the others must not see anything but their own."""
    ours = {"PYTHONPATH": os.pathsep.join(IMPORTABLE)} if contender.kind != PEER else {}
    return {name: v for name, v in os.environ.items() if name != "PYTHONPATH"} | ours
