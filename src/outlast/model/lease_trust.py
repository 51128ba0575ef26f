"""Lease trust: whether an expired lease proves that its owner is gone.

A lease is compared with the database's clock. That proves something only while this clock runs
evenly and while owners are able to renew. A step of the clock (NTP, a resumed VM or laptop), an
outage and a write lock of somebody else make the leases of healthy owners look expired.

    look ──── look ──── look ─ ─ step ─ ─ look ── probe ── probe ── probe ────▶ time
       offset of the clocks: equal        │          └─ calm: the database takes writes, so
                                          │             every living owner can renew
                                          └─ doubt: no lease is believed

A *look* compares the database's clock with the monotonic clock of this process. A *probe* is a
transaction that would take expired leases back and that went through promptly: it shows that
owners could have renewed at that moment. An expired lease is believed after a period of calm that
is long enough for its owner to renew at least once.

A look waits for no lock that a renewal waits for. So on a busy machine, where looks are slow, a
slow probe is not taken for one that has waited: else a fleet that is short of processors would
believe no lease for as long as that lasts.
"""

from __future__ import annotations

from typing import NamedTuple

TOLERANCE_S = 0.1  # by which two looks may disagree without a step of the clock
MIN_PROMPT_S, MAX_PROMPT_S = 0.1, 1.0  # a probe that takes longer has waited for somebody
RENEWAL_SHARE = 0.5  # of an owner's lease: it renews at least every third, and tries again sooner
ALWAYS = 1e12  # seconds; more than any clock shows


class Belief(NamedTuple):
    """What a statement is told that takes expired leases back."""

    calm: float = ALWAYS  # seconds for which owners have been able to renew
    unknown: float = 0.0  # seconds of calm that an owner needs whose own lease is not known
    until: float = ALWAYS  # later than this by the database's clock, the statement has waited
    since: float = 0.0  # since when the database's clock has run evenly; seconds since 1970

    @property
    def leases(self) -> dict[str, float]:
        return {"calm": self.calm, "unknown": self.unknown, "until": self.until}

    @property
    def deadlines(self) -> dict[str, float]:
        return {"since": self.since, "until": self.until}


BELIEVE = Belief()  # for callers that know the clock to be right


class LeaseTrust:
    """What one process knows about the database's clock and about its locks. All moments are given
    by the caller: `said` is the database's clock, the others are the monotonic clock."""

    def __init__(self, lease: float, renew_every: float) -> None:
        self._lease = lease
        self._renew_every = renew_every
        self._prompt = min(MAX_PROMPT_S, max(MIN_PROMPT_S, lease / 6))
        self._gap = max(1.0, lease / 3)  # between two probes of one period of calm
        self._slow = 0.0  # seconds that a look takes at present, which is the machine's load
        self._offset: tuple[float, float] | None = None  # database less monotonic: low, high
        self._since: float | None = None
        self.doubted = False  # since the last look
        self._quiet_at = -ALWAYS  # when a doubt was over
        self._calm_since: float | None = None
        self._probed_at = -ALWAYS

    def observe_clock(self, db_time: float, sent: float, received: float) -> bool:
        """Compare the clocks; True if the database's clock has stepped since the last look. The
        answer was made at some moment between `sent` and `received`."""
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
        """A step of the clock, an outage, a lock: owners may have been unable to renew."""
        self.doubted = True
        self._calm_since = None

    def probed(self, sent: float, received: float) -> None:
        """A transaction that takes leases back went through. If it waited, or if nobody knows what
        was between it and the one before, the period of calm begins with it."""
        waited = received - sent > self._slack
        gap = sent - self._probed_at > self._longest_gap
        if self._calm_since is None or waited or gap:
            self._calm_since = received
        self._probed_at = received

    def unsettled(self, now: float) -> bool:
        """Whether duties that end what others run should be left for later: owners have not all had
        their turn since the last doubt."""
        return self.doubted or now - self._quiet_at < 3 * self._renew_every

    def belief(self, now: float) -> Belief:
        """What a statement may believe that is sent now."""
        if self._offset is None or self._since is None:
            return Belief(calm=-1.0, until=0.0, since=ALWAYS)
        calm = -1.0
        if self._calm_since is not None and now - self._probed_at <= self._longest_gap:
            calm = now - self._calm_since
        until = now + self._offset[1] + self._slack + TOLERANCE_S
        return Belief(calm, RENEWAL_SHARE * 3 * self._renew_every, until, self._since)

    @property
    def _slack(self) -> float:
        """Seconds that a statement may take without having waited. At most a third of a lease: an
        owner that renews in time has twice as much left, whatever happens meanwhile."""
        return max(self._prompt, min(self._lease / 3, 2 * self._slow))

    @property
    def _longest_gap(self) -> float:
        """Seconds between two probes of one period of calm; at most half a lease, likewise."""
        return max(self._gap, min(self._lease / 2, self._gap + 2 * self._slow))
