"""Garbage collection of a worker process: less frequent, and without long-lived objects.

A batch of jobs creates thousands of objects, nearly all of which are freed without the collector.
By default it scans them after every few hundred, and sometimes all modules: a tenth of the cost of
a short job.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

MIN_NEW_OBJECTS = 10_000  # between collections


@contextmanager
def rarely_collected() -> Iterator[None]:
    """Reduce collections, for a process of Outlast's own, after its imports. If the program has
    disabled the collector or raised its threshold, that setting is kept."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    if 0 < before[0] < MIN_NEW_OBJECTS:
        gc.set_threshold(MIN_NEW_OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
