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

_lock = threading.Lock()
_last = 0  # 60 bits: milliseconds, then a 12-bit counter that keeps one process's ids in order


def new_job_id() -> str:
    """A UUIDv7 that sorts after every earlier id of this process."""
    global _last  # noqa: PLW0603
    with _lock:
        _last = tick = max(_last + 1, time.time_ns() // 1_000_000 << 12)
    random_bits = int.from_bytes(entropy(8)) & 0x3FFFFFFFFFFFFFFF | 1 << 63
    digits = f"{(tick >> 12) << 80 | 7 << 76 | (tick & 0xFFF) << 64 | random_bits:032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def new_instance_id() -> str:
    """The id of a process, new at every start: a restarted worker never answers for a dead one."""
    return entropy(10).hex()


def _after_fork() -> None:
    global _lock  # noqa: PLW0603 - the parent may have held it
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
