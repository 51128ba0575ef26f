"""A retry policy's bounds: each is refused with its own reason."""

from __future__ import annotations

import math
from typing import Any

import pytest

from outlast import InvalidOption, RetentionSettings, Retry, StoreSettings, WorkerSettings
from outlast.model.errors import InvalidSetting


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"cap": 1e12}, "cap must be a number of seconds from 0 to 315360000, not 1000000"),
        ({"cap": math.inf}, "cap must be a number of seconds from 0 to 315360000, not inf"),
        ({"cap": "5"}, "cap must be a number of seconds from 0 to 315360000, not '5'"),
        ({"cap": 0.5}, r"cap must be at least base \(1 s\), not 0.5"),
        ({"base": 400.0}, r"cap must be at least base \(400 s\), not 300"),
        ({"base": -1}, "base must be a number of seconds from 0 to 315360000, not -1"),
        ({"base": 1e12}, "base must be a number of seconds from 0 to 315360000"),
        ({"base": math.nan}, "base must be a number of seconds"),
        ({"base": True}, "base must be a number of seconds"),
        ({"jitter": 1.5}, "jitter must be a share from 0 to 1, not 1.5"),
        ({"max_attempts": 0}, "max_attempts must be a whole number from 1 to 1000000, not 0"),
        ({"max_attempts": True}, "max_attempts must be a whole number"),
        ({"max_attempts": 2.0}, "max_attempts must be a whole number"),
    ],
    ids=repr,
)
def test_a_bound_is_refused_with_its_own_reason(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidOption, match=reason):
        Retry(**given)


def test_the_bounds_themselves_are_accepted() -> None:
    Retry(base=0, cap=315_360_000, jitter=1, max_attempts=1_000_000)


@pytest.mark.parametrize(
    ("settings", "given", "reason"),
    [
        (WorkerSettings, {"lease": 1e300}, "lease must be .* at most"),
        (StoreSettings, {"deadline": 1e300}, "deadline must be .* at most 86400, not"),
        (RetentionSettings, {"keep_succeeded": 1e300}, "keep_succeeded must be .* at most 3.1536e"),
        (StoreSettings, {"pool_size": 0}, "pool_size must be at least 1 and at most 1000, not 0"),
    ],
)
def test_a_setting_beyond_what_its_user_can_take_is_refused(
    settings: Any, given: dict[str, Any], reason: str
) -> None:
    with pytest.raises(InvalidSetting, match=reason):
        settings(**given)
