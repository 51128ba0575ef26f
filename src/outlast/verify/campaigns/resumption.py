"""Resumption: the time until work resumes after a failover, by each route to the primary."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..ledger import LedgerEntry

FIRST_CLAIM = "first_claim"
BY_ROUTE = {"accepted": "first_finish", "promised": "first_enqueue"}  # by kind of entry


class Resumption:
    """The first entry of each kind after a moment. `routes` has the route of each process."""

    def __init__(self, since: float, routes: Mapping[int, str], names: Iterable[str]) -> None:
        self.seconds: dict[str, float] = {}
        self._since, self._routes = since, routes
        self._expected = [
            FIRST_CLAIM, *(f"{what}_by_{name}" for name in names for what in BY_ROUTE.values())
        ]  # fmt: skip

    @property
    def missing(self) -> list[str]:
        return [name for name in self._expected if name not in self.seconds]

    def record(self, entries: Iterable[LedgerEntry]) -> bool:
        """Record entries; returns whether every kind has been seen."""
        for entry in entries:
            if entry.at > self._since and (name := self._name(entry)) in self.missing:
                self.seconds[name] = entry.at - self._since
        return not self.missing

    def _name(self, entry: LedgerEntry) -> str:
        if entry.kind == "began":
            return FIRST_CLAIM
        return f"{BY_ROUTE.get(entry.kind)}_by_{self._routes.get(entry.pid)}"
