"""A terminal: a shell that keeps its folder and environment from one command to the next."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

END_S = 10.0
_ENDED = re.compile(r"^\[\[ended with (\d+)\]\]$", re.MULTILINE)


class Terminal:
    def __init__(self, folder: Path, env: Mapping[str, str], log: Path) -> None:
        self._log = log
        self._from = 0
        with log.open("wb") as output:
            self._shell = subprocess.Popen(
                ["/bin/bash", "--noprofile", "--norc"],
                stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT,
                cwd=folder, env=env, start_new_session=True,
            )  # fmt: skip

    def type(self, command: str) -> None:
        """Start a command. Its standard input is empty, since the shell reads from ours."""
        assert self._shell.stdin is not None
        self._from = self._log.stat().st_size
        script = f"{{ {command}\n}} </dev/null\nprintf '\\n[[ended with %s]]\\n' $?\n"
        self._shell.stdin.write(script.encode())
        self._shell.stdin.flush()

    @property
    def code(self) -> int | None:
        """The exit code of the last command; none while it runs."""
        ended = _ENDED.search(self._text())
        if ended is None and self._shell.poll() is not None:
            return self._shell.returncode
        return int(ended[1]) if ended else None

    def output(self) -> str:
        """The output of the last command so far."""
        return _ENDED.sub("", self._text()).strip()

    def close(self) -> None:
        """End the shell and its programs."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._shell.pid, number)
            with suppress(subprocess.TimeoutExpired):
                self._shell.communicate(timeout=END_S)

    def _text(self) -> str:
        with self._log.open("rb") as log:
            log.seek(self._from)
            return log.read().decode(errors="replace")
