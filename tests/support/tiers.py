"""Samples of long matrices: the default run has a few of the cases, `make slow` the others."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def slow_but(kept: Collection[Any], cases: Iterable[Any]) -> list[Any]:
    """The cases as parameters; those that are not kept are slow."""
    cases = list(cases)
    assert all(one in cases for one in kept), f"{kept}: choose from {cases}"
    return [case if case in kept else pytest.param(case, marks=pytest.mark.slow) for case in cases]
