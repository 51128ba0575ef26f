"""Clusters that `outlast verify failover` can fail over: what a campaign needs of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from ..children import Children
from .own_postgres import OwnDatabase, Poll


class FailoverTimes(NamedTuple):
    """Two moments of a failover, by the monotonic clock."""

    failed_at: float  # the primary was stopped or killed
    primary_at: float  # another server accepted writes


class FailoverCluster(OwnDatabase, Protocol):
    """Servers of which one is the primary."""

    @property
    def routes(self) -> Mapping[str, str]:
        """The addresses by which clients find the primary, by name."""

    def synchronise(self, poll: Poll) -> None:
        """From now on no commit is acknowledged that no standby has."""

    def fail_over(self, poll: Poll) -> FailoverTimes:
        """The primary fails, and a standby takes its place."""

    def rebuild(self, children: Children, poll: Poll) -> None:
        """The failed server comes back as a standby, and has caught up."""
