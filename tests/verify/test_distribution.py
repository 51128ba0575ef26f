"""Shares of what was measured, and the picture of it."""

from __future__ import annotations

import json

from outlast.verify.distribution import Distribution


def test_shares_are_values_that_were_measured() -> None:
    said = Distribution(n / 100 for n in range(100, 0, -1)).as_json()
    assert said == {"n": 100, "p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
    assert Distribution([0.25]).as_json() == {
        "n": 1, "p50": 0.25, "p90": 0.25, "p99": 0.25, "max": 0.25
    }  # fmt: skip


def test_nothing_measured_is_nothing_claimed() -> None:
    said = Distribution([]).as_json()
    assert json.loads(json.dumps(said, allow_nan=False))["p99"] is None
    assert Distribution([]).plot() == []


def test_every_value_is_in_the_picture() -> None:
    values = [0.0, 0.01, 0.31, 0.32, 0.33, 1.19, 500.0]
    lines = Distribution(values).plot()
    assert sum(int(line.split()[-1]) for line in lines) == len(values)
    assert len(lines) == 12
    assert len(Distribution([0.1, 0.31]).plot()) == 7
