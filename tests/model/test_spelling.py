"""A misspelt option is refused by the class that was asked, with the nearest spelling."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace
from typing import Any

import pytest

from outlast import (
    Breaker,
    InvalidOption,
    InvalidSetting,
    Outlast,
    Retry,
    StoreSettings,
    WorkerSettings,
)

ol = Outlast("sqlite:///unused.db")


@ol.task
def work() -> None: ...


@pytest.mark.parametrize(
    ("make", "given", "says"),
    [
        (
            Retry,
            {"max_atempts": 3},
            "Retry has no option 'max_atempts': did you mean max_attempts?",
        ),
        (Breaker, {"failurs": 3}, "Breaker has no option 'failurs': did you mean failures?"),
        (
            WorkerSettings,
            {"leese": 3},
            "WorkerSettings has no setting 'leese': did you mean lease?",
        ),
        (
            StoreSettings,
            {"pool": 3},
            "StoreSettings has no setting 'pool': did you mean pool_size?",
        ),
        (ol.worker, {"leese": 3}, "WorkerSettings has no setting 'leese': did you mean lease?"),
        (ol.queue, {"name": "z", "runing": 3}, "no option 'runing': did you mean running?"),
        (work.using, {"dealy": 3}, "no option 'dealy': did you mean delay?"),
        (
            ol.schedule,
            {"name": "x", "job": work.job(), "crom": "* * * * *"},
            "A schedule has no option 'crom': did you mean cron?",
        ),
    ],
)
def test_a_misspelt_option_names_the_nearest_one(
    make: Any, given: dict[str, Any], says: str
) -> None:
    with pytest.raises((InvalidOption, InvalidSetting)) as refused:
        make(**given)
    assert says in str(refused.value)


@pytest.mark.parametrize("value", [Retry(max_attempts=7), Breaker(failures=2), WorkerSettings()])
def test_values_are_copied_as_before(value: Any) -> None:
    assert copy.copy(value) == replace(value) == pickle.loads(pickle.dumps(value)) == value
