"""`outlast top`: a live view, and one look for programs."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from outlast import Outlast
from tests.cli.conftest import Commands, Program, patiently
from tests.support import Database, Proxy
from tests.support.processes import ROOT


def test_one_look_shows_everything(run: Commands, ol: Outlast, program: Program) -> None:
    done = run("enqueue", "add", "--args", '{"a": 1}').out.strip()
    dead = run("enqueue", "give_up", "--args", '{"why": "no way"}').out.strip()
    held = run("enqueue", "wait_for", "--queue", "slow", "--args", '{"file": "/never"}').out.strip()
    worker = program.worker()
    patiently(
        lambda: {ol.job(id).state for id in (done, dead, held)} == {"succeeded", "dead", "running"},
        message=worker.output,
    )
    shown = run("top", "--once").out
    for text in (held, dead, "no way", "slow", str(worker.pid), "1 succeeded in the last minute"):
        assert text in shown
    told = run("top", "--json").json
    assert told["counts"] == ol.counts()
    assert [job["id"] for job in told["running"]] == [held]
    assert [job["id"] for job in told["dead"]] == [dead]
    assert [one["pid"] for one in told["workers"]] == [worker.pid]
    assert told["ended"]["succeeded"]["number"] == 1


@pytest.mark.kinds("sqlite")
def test_without_a_terminal_it_asks_for_one_look(run: Commands) -> None:
    answer = run("top")
    assert answer.code == 2
    assert "pass --once" in answer.err


@pytest.mark.kinds("sqlite")
@pytest.mark.parametrize("interval", ["0", "nan", "often"])
def test_a_bad_interval_is_refused(run: Commands, interval: str) -> None:
    assert run("top", "--interval", interval).code == 2


class Terminal:
    """A real program at a real terminal."""

    def __init__(self, *command: str, env: dict[str, str]) -> None:
        self.master, slave = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, *command],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={
                **os.environ,
                **env,
                "PYTHONPATH": str(ROOT / "src"),
                "TERM": "xterm",
                "COLUMNS": "160",
                "LINES": "50",
            },
            start_new_session=True,
        )
        os.close(slave)
        self.seen = ""

    def shows(self, text: str) -> bool:
        ready, _, _ = select.select([self.master], [], [], 0.05)
        if ready:
            try:
                self.seen += os.read(self.master, 65536).decode(errors="replace")
            except OSError:  # Linux: the other side is closed
                return text in self.seen
        return text in self.seen

    def forget(self) -> None:
        self.seen = ""

    def press(self, key: str) -> None:
        os.write(self.master, key.encode())

    def ended(self) -> int:
        deadline = time.monotonic() + 10
        while self.process.poll() is None and time.monotonic() < deadline:
            self.shows("nothing: only so that it can write")
        return self.process.wait(1)


@contextmanager
def terminal(database: Database) -> Iterator[Terminal]:
    env = {"OUTLAST_URL": database.url, "OUTLAST_SCHEMA": database.schema}
    opened = Terminal("-m", "outlast", "top", "--interval", "0.1", env=env)
    try:
        yield opened
    finally:
        opened.process.kill()
        opened.process.wait()
        os.close(opened.master)


@pytest.mark.kinds("sqlite")
def test_it_follows_what_happens_until_q_is_pressed(run: Commands, database: Database) -> None:
    run("migrate")
    with terminal(database) as top:
        patiently(lambda: top.shows("Nothing succeeded"), message=lambda: top.seen)
        run("enqueue", "add", "--queue", "brand-new")
        patiently(lambda: top.shows("brand-new"), message=lambda: top.seen)
        top.press("x")
        top.forget()
        patiently(lambda: top.shows("brand-new"), message=lambda: top.seen)
        top.press("q")
        assert top.ended() == 0
        assert "Traceback" not in top.seen


@pytest.mark.kinds("sqlite")
def test_it_leaves_on_ctrl_c(run: Commands, database: Database) -> None:
    run("migrate")
    with terminal(database) as top:
        patiently(lambda: top.shows("Nothing succeeded"), message=lambda: top.seen)
        top.process.send_signal(signal.SIGINT)
        assert top.ended() == 0
        assert "Traceback" not in top.seen


@pytest.mark.kinds("sqlite")
def test_q_is_heard_after_keys_of_several_characters(run: Commands, database: Database) -> None:
    run("migrate")
    with terminal(database) as top:
        patiently(lambda: top.shows("Nothing succeeded"), message=lambda: top.seen)
        top.press("\x1b[A\x1b[Bq")
        assert top.ended() == 0


@pytest.mark.kinds("sqlite")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signals_leave_the_terminal_as_it_was(
    run: Commands, database: Database, number: signal.Signals
) -> None:
    """With its cursor, and without the other screen."""
    run("migrate")
    with terminal(database) as top:
        patiently(lambda: top.shows("Nothing succeeded"), message=lambda: top.seen)
        assert top.shows("\x1b[?1049h")
        top.process.send_signal(number)
        assert top.ended() == 128 + number
        patiently(lambda: top.shows("\x1b[?1049l"), message=lambda: top.seen)
        assert top.shows("\x1b[?25h")


@pytest.mark.kinds("postgres")
def test_it_says_when_the_database_goes_away(
    database: Database, run: Commands, proxy: Proxy
) -> None:
    """And goes on when it is back."""
    run("migrate")
    with terminal(replace(database, url=proxy.url(database.url))) as top:
        patiently(lambda: top.shows("Nothing succeeded"), message=lambda: top.seen)
        proxy.refuse()
        patiently(lambda: top.shows("The database cannot be reached"), message=lambda: top.seen)
        proxy.accept()
        run("enqueue", "add", "--queue", "back-again")
        patiently(lambda: top.shows("back-again"), timeout=20, message=lambda: top.seen)
        top.press("q")
        assert top.ended() == 0
