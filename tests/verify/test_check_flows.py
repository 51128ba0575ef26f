"""The judge of jobs that wait for each other is judged."""

from __future__ import annotations

import pytest

from outlast.verify.checks.checker import check, miscounted_waits
from tests.verify.flow_histories import BAD, GOOD, MISCOUNTED, WELL_COUNTED
from tests.verify.histories import History


@pytest.mark.parametrize("history", GOOD.values(), ids=GOOD)
def test_a_good_history_of_a_flow_is_left_alone(history: History) -> None:
    assert check(history.evidence) == []


@pytest.mark.parametrize(("kind", "history"), BAD.values(), ids=BAD)
def test_a_bad_history_of_a_flow_is_caught(kind: str, history: History) -> None:
    """R205, R206: each rule, broken in each way, and told once or twice."""
    found = check(history.evidence)
    assert kind in {f"{violation.invariant} {violation.orphan}" for violation in found}, found
    assert len(found) <= 4, found
    assert all(violation.message and violation.job for violation in found)


@pytest.mark.parametrize("history", WELL_COUNTED.values(), ids=WELL_COUNTED)
def test_who_waits_for_what_is_to_come_is_left_alone(history: History) -> None:
    assert list(miscounted_waits(history.evidence)) == []


@pytest.mark.parametrize(("kind", "history"), MISCOUNTED.values(), ids=MISCOUNTED)
def test_who_waits_in_vain_is_noticed_before_anybody_heals_it(kind: str, history: History) -> None:
    """R091, R102, R205: by the count alone, in the middle of it all."""
    (found,) = miscounted_waits(history.evidence)
    assert (f"{found.invariant} {found.orphan}", found.queue) == (kind, "q")
    assert found.job in ("x", "m")
