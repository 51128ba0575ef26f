"""State shared by the parts of a remote worker: the connection, tokens, the spool."""

from __future__ import annotations

from pathlib import Path

from ..model.claim import Claim, ClaimKey
from ..worker.in_flight import InFlightJobs
from .http_client import ServerClient
from .spool import Spool


class RemoteSession:
    def __init__(
        self, name: str, client: ServerClient, in_flight: InFlightJobs, folder: Path
    ) -> None:
        self.name = name  # until the server assigns an id
        self.client = client
        self.folder = folder  # of spools
        self.tokens: dict[ClaimKey, str] = {}
        self.takes_traces = False  # an older server refuses unknown fields
        self.connected = False  # to a server that has registered this worker
        self._in_flight = in_flight
        self._spool: Spool | None = None

    @property
    def spool(self) -> Spool:
        assert self._spool is not None, "the spool must be opened before the first event"
        return self._spool

    def open_spool(self) -> None:
        self._spool = Spool.create(self.folder, self.name)

    async def aclose(self) -> None:
        if self._spool is not None:
            self._spool.end()
        await self.client.close()

    def token(self, claim: Claim) -> str:
        return self.tokens.get(claim.claim_key, "")

    def token_of(self, job: str, fence: int | None = None) -> str:
        """The token of a job in flight, with this fence if given."""
        held = self._in_flight.get(job, fence)
        return self.token(held.claim) if held else ""
