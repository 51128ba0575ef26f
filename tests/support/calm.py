"""Lease trust as a worker has it that has looked at its database for an hour."""

from __future__ import annotations

import time

from outlast.worker.maintenance import Maintenance

AN_HOUR = 3600.0


def seasoned(healer: Maintenance) -> Maintenance:
    """As if it had seen an even clock, and a database that takes writes, for an hour."""
    trust, now = healer.detector.trust, time.monotonic()
    trust.observe_clock(time.time() - AN_HOUR, now - AN_HOUR, now - AN_HOUR)
    let_time_pass(healer)
    return healer


def let_time_pass(healer: Maintenance) -> None:
    """As if an hour had passed since the last doubt, with a probe just now."""
    trust, now = healer.detector.trust, time.monotonic()
    trust._quiet_at = trust._stable_since = now - AN_HOUR
    trust._probed_at = now
    trust._since = time.time() - AN_HOUR
