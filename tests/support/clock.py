"""Processes whose clock is wrong."""

from __future__ import annotations

import functools
import os
import subprocess

from tests.support.requirements import require_program


def wrong_clock(offset: str) -> dict[str, str]:
    """An environment in which the wall clock is off by e.g. "+2h" or "-30d".

    For `processes.python(…, env=wrong_clock("+2h"))`. The monotonic clock stays right, as it does
    on a machine whose date is wrong.
    """
    return {"LD_PRELOAD": _library(), "FAKETIME": offset, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}


@functools.cache
def _library() -> str:
    """Where libfaketime is installed: what the faketime command itself would preload."""
    command = [require_program("faketime"), "-f", "+0", "sh", "-c", "echo $LD_PRELOAD"]
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    for _ in range(10):
        # It names a semaphore by its process id, and fails if an earlier owner left one behind.
        done = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
        if done.returncode == 0:
            return done.stdout.strip()
    raise AssertionError(f"faketime does not start: {done.stderr}")
