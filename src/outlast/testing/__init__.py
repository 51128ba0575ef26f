"""Tests of your own tasks: run jobs in process, move the clock, check what was enqueued.

from outlast.testing import advance, assert_enqueued, context, drain

def test_an_order_is_charged(outlast):             # the fixture of the pytest plugin
    order.enqueue(7)
    assert drain(outlast).succeeded == 2
    assert_enqueued(charge, 7)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .assertions import assert_enqueued, refute_enqueued
    from .clock import advance, now
    from .drainer import NotIdle, adrain, drain
    from .recorded_context import RecordedContext, context
    from .summary import Drained, Failure, JobsFailed

_HOMES = {
    "Drained": "summary",
    "Failure": "summary",
    "JobsFailed": "summary",
    "NotIdle": "drainer",
    "RecordedContext": "recorded_context",
    "adrain": "drainer",
    "advance": "clock",
    "assert_enqueued": "assertions",
    "context": "recorded_context",
    "drain": "drainer",
    "now": "clock",
    "refute_enqueued": "assertions",
}

__all__ = [
    "Drained",
    "Failure",
    "JobsFailed",
    "NotIdle",
    "RecordedContext",
    "adrain",
    "advance",
    "assert_enqueued",
    "context",
    "drain",
    "now",
    "refute_enqueued",
]


def __getattr__(name: str) -> object:
    """Imported when first used: pytest imports the plugin of this package in every run."""
    if name not in _HOMES:
        raise AttributeError(f"module 'outlast.testing' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = value
    return value
