"""Real Python processes, that a test may kill, pause and resume, and that never outlive it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from tests.support.janitor import janitor
from tests.support.waiting import TIMEOUT

ROOT = Path(__file__).parents[2]


class Process:
    """One started process, the leader of its own process group."""

    def __init__(self, popen: subprocess.Popen[bytes], log: Path) -> None:
        self._popen = popen
        self._log = log

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def ended(self) -> bool:
        return self._popen.poll() is not None

    @property
    def returncode(self) -> int | None:
        """None while it runs; the negative signal number if one ended it."""
        return self._popen.poll()

    def output(self) -> str:
        """Everything written so far, stdout and stderr together."""
        return self._log.read_text(errors="replace")

    def signal(self, number: int) -> None:
        """Send a signal to this process alone, not to its children."""
        self._popen.send_signal(number)

    def kill(self) -> None:
        """kill -9 this process alone, and wait until it is gone. Its children live on."""
        self.signal(signal.SIGKILL)
        self.wait()

    def terminate(self) -> None:
        self.signal(signal.SIGTERM)

    def interrupt(self) -> None:
        self.signal(signal.SIGINT)

    def pause(self) -> None:
        """SIGSTOP: alive, but doing nothing. Returns when the whole process has stopped."""
        stop(self.pid)

    def resume(self) -> None:
        cont(self.pid)

    def wait(self, timeout: float = TIMEOUT) -> int:
        """Wait for the end and return the exit code; an AssertionError shows the output."""
        try:
            return self._popen.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"{self!r} still runs after {timeout:g} s\n{self.output()}"
            ) from None

    def succeed(self, timeout: float = TIMEOUT) -> str:
        """Wait for the end, insist on exit code 0, and return the output."""
        code = self.wait(timeout)
        assert code == 0, f"{self!r} ended with {code}\n{self.output()}"
        return self.output()

    def end_group(self) -> None:
        """kill -9 the process and all its descendants that stayed in its group."""
        # PermissionError: macOS, when only zombies are left in the group
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self._popen.wait()
        janitor.forget_group(self.pid)

    def __repr__(self) -> str:
        return f"<{' '.join(map(str, self._popen.args))} pid={self.pid}>"


class Processes:
    """The processes of one test. The `processes` fixture ends them all, also when it fails."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: list[Process] = []

    def python(
        self,
        target: str | Path,
        *args: object,
        env: Mapping[str, str | None] | None = None,
        cwd: Path | None = None,
    ) -> Process:
        """Start this interpreter on a script (a Path), a module ("outlast.cli"), or source code.

        Source code is a string of more than one line; it is dedented and written to a file.
        `env` is added to the environment, and a value of None removes a name. The project and
        `cwd` (default: a folder of this test) are importable.
        """
        if isinstance(target, Path):
            command = [str(target)]
        elif "\n" in target:
            command = [str(self._script(target))]
        else:
            command = ["-m", target]
        return self.run(sys.executable, *command, *args, env=env, cwd=cwd)

    def run(
        self,
        *command: object,
        env: Mapping[str, str | None] | None = None,
        cwd: Path | None = None,
    ) -> Process:
        """Start any command in a process group of its own."""
        cwd = cwd or self.folder
        log = self.folder / f"process-{len(self.started)}.log"
        with log.open("wb") as output:
            popen = subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=cwd,
                env=_environment(cwd, env or {}),
                start_new_session=True,
            )
        janitor.watch_group(popen.pid)
        process = Process(popen, log)
        self.started.append(process)
        return process

    def end_all(self) -> None:
        for process in self.started:
            process.end_group()

    def report(self) -> str:
        """What every process said, for the failure report."""
        return "\n".join(
            f"--- {process!r} ended with {process.returncode}\n{process.output()[-8000:]}"
            for process in self.started
        )

    def _script(self, source: str) -> Path:
        script = self.folder / f"script_{len(self.started)}.py"
        script.write_text(textwrap.dedent(source).strip() + "\n")
        return script


def kill(pid: int) -> None:
    """kill -9, for a process that a process of ours started."""
    os.kill(pid, signal.SIGKILL)


def stop(pid: int, timeout: float = 5.0) -> None:
    """SIGSTOP, and wait until every thread has stopped (Linux; elsewhere the signal is all)."""
    os.kill(pid, signal.SIGSTOP)
    tasks = Path(f"/proc/{pid}/task")
    deadline = time.monotonic() + timeout
    while tasks.exists() and any(_runs(task) for task in tasks.iterdir()):
        assert time.monotonic() < deadline, f"process {pid} did not stop within {timeout:g} s"
        time.sleep(0.001)


def stopped(pid: int, timeout: float = 30.0) -> None:
    """Wait until a process has stopped itself, every thread of it."""
    tasks = Path(f"/proc/{pid}/task")
    deadline = time.monotonic() + timeout
    while any(_runs(task) for task in tasks.iterdir()):
        assert time.monotonic() < deadline, f"process {pid} has not stopped itself"
        time.sleep(0.001)


def cont(pid: int) -> None:
    """SIGCONT: a paused process goes on where it was."""
    os.kill(pid, signal.SIGCONT)


def alive(pid: int) -> bool:
    """Whether a process exists and is more than a zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return _state(Path(f"/proc/{pid}")) not in ("Z", "X")


def _runs(task: Path) -> bool:
    return _state(task) not in ("T", "t", "Z", "X", "")


def _state(process: Path) -> str:
    try:
        # The name in parentheses may itself contain spaces and parentheses.
        return (process / "stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _environment(cwd: Path, changes: Mapping[str, str | None]) -> dict[str, str]:
    merged: dict[str, str | None] = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(cwd), str(ROOT / "src"), str(ROOT)]),
        "PYTHONUNBUFFERED": "1",
        "PYTHONFAULTHANDLER": "1",
        **changes,
    }
    return {name: value for name, value in merged.items() if value is not None}
