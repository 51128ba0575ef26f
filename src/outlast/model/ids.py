"""Generated ids of jobs and instances.

A job's id is a UUIDv7 made by the client, so that a repeated submit names the same job, and later
ids of one process sort later. `entropy` is the only source of randomness.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

INSTANCE_VARIABLE = "OUTLAST_INSTANCE"  # the instance id that a supervisor gives its child

entropy: Callable[[int], bytes] = os.urandom

_lock = threading.RLock()  # a signal handler may interrupt its own thread here
_VARIANT = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}  # RFC 9562
_last = 0  # 60 bits: milliseconds, then a 12-bit counter that keeps one process's ids in order


def new_job_id() -> str:
    """A UUIDv7 that sorts after every earlier id of this process."""
    global _last  # noqa: PLW0603
    with _lock:
        _last = tick = max(_last + 1, time.time_ns() // 1_000_000 << 12)
    return _job_id(tick, entropy(8).hex())


def new_job_ids(number: int) -> list[str]:
    """Several ids at once, in order; at a third of the cost."""
    global _last  # noqa: PLW0603
    with _lock:
        first = max(_last + 1, time.time_ns() // 1_000_000 << 12)
        _last = first + number - 1
    digits = entropy(8 * number).hex()
    return [_job_id(first + n, digits[16 * n : 16 * n + 16]) for n in range(number)]


def _job_id(tick: int, random: str) -> str:
    moment, variant = f"{tick:015x}", _VARIANT[random[0]]
    return f"{moment[:8]}-{moment[8:12]}-7{moment[12:]}-{variant}{random[1:4]}-{random[4:]}"


def new_instance_id() -> str:
    """The id of a process, new at every start: a restarted worker never answers for a dead one."""
    return entropy(10).hex()


def _after_fork() -> None:
    global _lock  # noqa: PLW0603 - the parent may have held it
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
