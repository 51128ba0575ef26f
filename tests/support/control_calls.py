"""Delays measured against control calls: a busy machine delays both, an attack only one."""

from __future__ import annotations

from collections.abc import Sequence


def delays(rounds: Sequence[tuple[float, float]]) -> list[float]:
    """For each round (seconds of the call, seconds of its control), how much longer the call took
    than the slowest control at about that time: of the round before, the same and the next one."""
    controls = [control for _, control in rounds]
    return [
        call - max(controls[max(0, number - 1) : number + 2])
        for number, (call, _) in enumerate(rounds)
    ]
