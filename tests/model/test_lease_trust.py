"""Lease trust: when an expired lease is believed."""

from __future__ import annotations

import pytest

from outlast.model.lease_trust import RENEWAL_SHARE, LeaseTrust

LEASE, RENEW_EVERY = 15.0, 5.0
EPOCH = 1_800_000_000.0  # the database's clock when the monotonic one is 0


def trusting(moment: float = 0.0, offset: float = EPOCH) -> LeaseTrust:
    """One that looked once, at that moment of the monotonic clock."""
    trust = LeaseTrust(LEASE, RENEW_EVERY)
    assert not look(trust, moment, offset)
    return trust


def look(trust: LeaseTrust, now: float, offset: float = EPOCH, took: float = 0.01) -> bool:
    return trust.observe_clock(now + offset - took / 2, now - took, now)


def test_before_the_first_look_nothing_is_believed() -> None:
    """R213: a process that has just started knows nothing about the clock."""
    belief = LeaseTrust(LEASE, RENEW_EVERY).belief(100.0)
    assert belief.stable < 0
    assert belief.until == 0.0


def test_calm_begins_with_the_first_probe_and_lasts() -> None:
    """R213, R214: a start, too, waits until owners could renew."""
    trust = trusting()
    assert trust.belief(1.0).stable < 0
    for now in (1.0, 2.0, 3.0, 7.5):
        trust.probed(now - 0.01, now)
    assert trust.belief(9.0).stable == pytest.approx(8.0)
    assert trust.belief(9.0).unknown == RENEWAL_SHARE * 3 * RENEW_EVERY


def test_after_a_gap_between_probes_calm_begins_anew() -> None:
    """R214: nobody knows what was locked meanwhile."""
    trust = trusting()
    trust.probed(0.99, 1.0)
    trust.probed(6.99, 7.0)
    assert trust.belief(8.0).stable == pytest.approx(1.0)


def test_a_probe_that_waited_proves_nothing_of_the_time_before() -> None:
    """R214: it waited for a lock, as renewals did."""
    trust = trusting()
    trust.probed(0.99, 1.0)
    trust.probed(1.5, 4.0)
    assert trust.belief(5.0).stable == pytest.approx(1.0)


@pytest.mark.parametrize("step", [3600.0, -3600.0, 1.0, -1.0])
def test_a_step_of_the_clock_is_seen_and_ends_the_calm(step: float) -> None:
    """R213: ahead and back."""
    trust = trusting()
    trust.probed(0.99, 1.0)
    assert not look(trust, 2.0)
    assert look(trust, 2.5, EPOCH + step)
    assert trust.belief(2.5).stable < 0
    assert trust.unsettled(2.6)
    assert not look(trust, 3.0, EPOCH + step), "it is the clock from now on"
    assert trust.belief(3.0).since == pytest.approx(2.5 + EPOCH + step, abs=0.1)
    assert not trust.unsettled(2.5 + 3 * RENEW_EVERY)


def test_a_slow_answer_is_no_step() -> None:
    """R213: the database's clock was read at some moment between question and answer."""
    trust = trusting()
    for now, took in ((10.0, 9.0), (20.0, 0.01), (30.0, 8.0)):
        assert not trust.observe_clock(now - took + EPOCH, now - took, now), "at its beginning"
        assert not trust.observe_clock(now + EPOCH, now - took, now), "at its end"


def test_a_statement_that_comes_late_is_to_do_nothing() -> None:
    """R213, R214: the clock stepped, or it waited, between the look and the statement."""
    trust = trusting()
    trust.probed(0.99, 1.0)
    until = trust.belief(5.0).until
    assert 5.0 + EPOCH < until < 5.0 + EPOCH + 2.0


def test_an_outage_ends_the_calm_and_not_the_knowledge_of_the_clock() -> None:
    """R033, R213: deadlines count from before; leases after the first look that gets through."""
    trust = trusting()
    trust.probed(0.99, 1.0)
    trust.doubt()
    assert trust.unsettled(500.0)
    assert not look(trust, 500.0)
    assert trust.belief(500.0).since == pytest.approx(EPOCH, abs=0.1)
    assert trust.belief(500.0).stable < 0
    assert trust.unsettled(501.0)
    assert not trust.unsettled(500.0 + 3 * RENEW_EVERY)


def test_calm_is_not_believed_long_after_its_last_probe() -> None:
    """R214: in a large fleet looks are rare, and a lock may have come and gone between two."""
    trust = trusting()
    for now in (1.0, 3.0, 5.0, 7.0, 9.0):
        trust.probed(now - 0.01, now)
    assert trust.belief(10.0).stable == pytest.approx(9.0)
    assert trust.belief(30.0).stable < 0


def test_a_busy_machine_is_not_taken_for_a_lock() -> None:
    """R041, R214: a look takes no lock, so where looks are slow, slow probes have not waited; else
    a fleet that is short of processors would reclaim nothing for as long as that lasts."""
    trust = trusting()
    for now in range(2, 22, 2):
        look(trust, now - 1.9, took=1.9)
        trust.probed(now - 1.9, float(now))
    assert trust.belief(20.0).stable == pytest.approx(18.0)
    assert trust.belief(20.0).until - EPOCH < 20.0 + LEASE / 3 + 0.5

    look(trust, 20.5)
    for _ in range(6):
        look(trust, 21.0)
    trust.probed(21.0, 22.9)
    assert trust.belief(23.0).stable == pytest.approx(0.1), "looks are fast again: it has waited"
