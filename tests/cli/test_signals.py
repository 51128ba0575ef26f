"""Signals that end a command early."""

from __future__ import annotations

import signal
import subprocess
import sys

PROGRAM = """
import os, signal, time
from outlast.cli.signals import unwind_on_signals

class Finalized:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
        for _ in range(1000):  # the handler runs here, where its exception goes no further
            pass

unwind_on_signals()
try:
    Finalized()
    time.sleep(60)
finally:
    print("cleared up", flush=True)
"""


def test_a_signal_that_arrives_in_a_finalizer_ends_the_command() -> None:
    """R184: through every `finally`, and without a traceback."""
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=30, check=False
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (
        128 + signal.SIGTERM,
        "cleared up\n",
        "",
    )
