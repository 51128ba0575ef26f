"""Loops of the worker (see `outlast.loops`), and the errors that end a start instead."""

from __future__ import annotations

from ..loops import RECONNECT_EVERY_S, Backoff, Loop
from ..model.errors import CorruptDatabase, SchemaMismatch, Unsupported

__all__ = ["PERMANENT_ERRORS", "RECONNECT_EVERY_S", "Backoff", "Loop"]

# A program that starts on such a database ends with the reason: no waiting repairs it.
PERMANENT_ERRORS = (CorruptDatabase, SchemaMismatch, Unsupported)
