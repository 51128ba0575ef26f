"""The protocol of clusters that `outlast verify failover` can fail over."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from ..children import Children
from .own_postgres import OwnDatabase, Poll


class FailoverTimes(NamedTuple):
    """The times of a failover, by the monotonic clock."""

    failed_at: float  # the primary was stopped or killed
    primary_at: float  # another server accepted writes


class FailoverCluster(OwnDatabase, Protocol):
    """Servers of which one is the primary."""

    @property
    def routes(self) -> Mapping[str, str]:
        """The addresses by which clients find the primary, by name."""

    def synchronise(self, poll: Poll) -> None:
        """Acknowledge a commit only after a standby has it."""

    def fail_over(self, poll: Poll) -> FailoverTimes:
        """Stop or kill the primary, and wait until a standby is promoted."""

    def rebuild(self, children: Children, poll: Poll) -> None:
        """Bring the failed server back as a standby, and wait until it has caught up."""
