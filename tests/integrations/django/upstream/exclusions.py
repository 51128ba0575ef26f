"""Tests of Django's that cannot apply to our backend, each with its reason."""

from __future__ import annotations

_DUMMY = "test_dummy_backend.DummyBackendTestCase"
_IMMEDIATE = "test_immediate_backend.ImmediateBackendTestCase"
_TASKS = "test_tasks.TaskTestCase"
_BLOCKING = (
    "calls a blocking method inside an event loop, which Django's database connections refuse;"
    " the async twin is tested by the others"
)
_SUPPORTED = "expects a refusal of what our backend supports"

EXCLUDED = {
    f"{_DUMMY}.test_refresh_result": "changes a result in the memory of the dummy backend",
    f"{_DUMMY}.test_refresh_result_async": "changes a result in the memory of the dummy backend",
    f"{_DUMMY}.test_clear": "empties the memory of the dummy backend; jobs are rows",
    f"{_TASKS}.test_refresh_result": _BLOCKING,
    f"{_IMMEDIATE}.test_cannot_get_result": _SUPPORTED,
    f"{_IMMEDIATE}.test_cannot_refresh_result": _SUPPORTED,
    f"{_IMMEDIATE}.test_cannot_pass_run_after": _SUPPORTED,
}
