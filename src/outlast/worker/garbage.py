"""Garbage collection of a process that only works: rarer, and without what stays anyway.

A batch of jobs makes thousands of objects, nearly all of which are freed without the collector. By
default it looks at them after every few hundred, and at all modules now and then: a tenth of what
a short job costs.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

MIN_NEW_OBJECTS = 10_000  # between collections


@contextmanager
def rarely_collected() -> Iterator[None]:
    """For a process of our own, once everything is imported. A program that disabled the collector,
    or made it rarer, keeps its setting."""
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
