"""Lease trust: whether an expired lease proves that its owner is gone.

A lease is compared with the database's clock. That is proof only while this clock runs evenly and
owners are able to renew. A step of the clock (NTP, a resumed VM or laptop), an outage or a write
lock held by another client makes the leases of healthy owners look expired.

    check ─── check ─── check ─ ─ step ─ ─ check ── probe ── probe ── probe ───▶ time
       offset of the clocks: equal         │          └─ stable: the database takes writes, so
                                           │             every live owner can renew
                                           └─ doubt: no lease is believed

A *check* compares the database's clock with the monotonic clock of this process. A *probe* is a
reclaiming transaction that completed promptly: it shows that owners could have renewed at that
time. An expired lease is believed after a stable period that is long enough for its owner to renew
at least once.

A check waits for no lock that a renewal waits for, so its duration measures the load of the
machine. Where checks are slow, a slow probe does not count as blocked: otherwise an overloaded
fleet would believe no lease for as long as the load lasts.
"""

from __future__ import annotations

from typing import NamedTuple

TOLERANCE_S = 0.1  # difference between two checks that is not a step of the clock
MIN_PROMPT_S, MAX_PROMPT_S = 0.1, 1.0  # a probe that takes longer has waited for a lock
RENEWAL_SHARE = 0.5  # of its lease; an owner renews every third of it, and retries sooner
ALWAYS = 1e12  # seconds; more than any clock shows


class Belief(NamedTuple):
    """Parameters of a reclaiming statement: which expired leases it may believe."""

    stable: float = ALWAYS  # seconds for which owners have been able to renew
    unknown: float = 0.0  # stable seconds required for an owner whose lease is unknown
    until: float = ALWAYS  # database time after which the statement has waited
    since: float = 0.0  # start of the even run of the database's clock; seconds since 1970

    @property
    def leases(self) -> dict[str, float]:
        return {"stable": self.stable, "unknown": self.unknown, "until": self.until}

    @property
    def deadlines(self) -> dict[str, float]:
        return {"since": self.since, "until": self.until}


BELIEVE = Belief()  # for callers that know the clock to be right


class LeaseTrust:
    """What one process knows about the database's clock and locks. The caller passes all times:
    `db_time` is the database's clock, the others are the monotonic clock."""

    def __init__(self, lease: float, renew_every: float) -> None:
        self._lease = lease
        self._renew_every = renew_every
        self._prompt = min(MAX_PROMPT_S, max(MIN_PROMPT_S, lease / 6))
        self._gap = max(1.0, lease / 3)  # between two probes of one stable period
        self._slow = 0.0  # current duration of a check, a measure of load; seconds
        self._offset: tuple[float, float] | None = None  # database minus monotonic: low, high
        self._since: float | None = None
        self.doubted = False  # since the last check
        self._quiet_at = -ALWAYS  # end of the last doubt
        self._stable_since: float | None = None
        self._probed_at = -ALWAYS

    def observe_clock(self, db_time: float, sent: float, received: float) -> bool:
        """Compare the clocks; True if the database's clock has stepped since the last check. The
        database responded at some time between `sent` and `received`."""
        self._slow = max(received - sent, self._slow / 2)
        low, high = db_time - received, db_time - sent
        before, self._offset = self._offset, (low, high)
        stepped = before is not None and (
            low > before[1] + TOLERANCE_S or high < before[0] - TOLERANCE_S
        )
        if stepped:
            self.doubt()
        if stepped or self._since is None:
            self._since = db_time
        if self.doubted:
            self.doubted = False
            self._quiet_at = received
        return stepped

    def doubt(self) -> None:
        """Record a step of the clock, an outage or a lock: owners may have been unable to renew."""
        self.doubted = True
        self._stable_since = None

    def probed(self, sent: float, received: float) -> None:
        """Record a completed reclaiming transaction. If it waited, or came too long after the last
        probe, a new stable period begins with it."""
        waited = received - sent > self._slack
        gap = sent - self._probed_at > self._longest_gap
        if self._stable_since is None or waited or gap:
            self._stable_since = received
        self._probed_at = received

    def unsettled(self, now: float) -> bool:
        """Whether to defer duties that end jobs of other owners: some owners have not had time to
        renew since the last doubt."""
        return self.doubted or now - self._quiet_at < 3 * self._renew_every

    def belief(self, now: float) -> Belief:
        """The belief of a statement sent now."""
        if self._offset is None or self._since is None:
            return Belief(stable=-1.0, until=0.0, since=ALWAYS)
        stable = -1.0
        if self._stable_since is not None and now - self._probed_at <= self._longest_gap:
            stable = now - self._stable_since
        until = now + self._offset[1] + self._slack + TOLERANCE_S
        return Belief(stable, RENEWAL_SHARE * 3 * self._renew_every, until, self._since)

    @property
    def _slack(self) -> float:
        """Seconds that a statement may take without counting as blocked. At most a third of a
        lease: an owner that renews in time has twice as much left."""
        return max(self._prompt, min(self._lease / 3, 2 * self._slow))

    @property
    def _longest_gap(self) -> float:
        """Maximum seconds between two probes of one stable period; for the same reason at most
        half a lease."""
        return max(self._gap, min(self._lease / 2, self._gap + 2 * self._slow))
