"""What is said at /metrics, /livez and /readyz, whichever server is asked."""

from __future__ import annotations

from http import HTTPStatus

from ..store import Store
from .exposition import Exposition
from .health import Contact, Verdict
from .snapshot import Snapshot
from .sources import Sample, Tables, process
from .subjects import Subject

PLAIN = "text/plain; charset=utf-8"

Answer = tuple[int, str, bytes]  # status, content type, body


class Answers:
    """What is said at each path."""

    def __init__(
        self, subject: Subject, store: Store | None, measuring: Store | None = None
    ) -> None:
        """`measuring` is for what may take long. Without a store, nothing is said of tables."""
        self._subject = subject
        self._snapshot = Snapshot(measuring or store) if store else None
        self._contact = Contact(store) if store else None
        self._tables = Tables()
        self._exposition = Exposition(
            subject.who,
            lambda: process(subject.role, self._snapshot),
            self._measured,
            subject.samples,
        )

    async def answer(self, path: str, accept: str) -> Answer:
        match path:
            case "/metrics":
                if self._snapshot is not None:
                    await self._snapshot.latest()
                body, content_type = self._exposition.text(accept)
                return HTTPStatus.OK, content_type, body
            case "/livez":
                return judged(self._subject.alive())
            case "/readyz":
                reached = await self._contact.verdict() if self._contact else Verdict()
                return judged(Verdict(reached.against + self._subject.ready().against))
            case _:
                return problem(HTTPStatus.NOT_FOUND)

    def _measured(self) -> list[Sample]:
        measured = self._snapshot.measured if self._snapshot else None
        return [] if measured is None else list(self._tables.samples(measured))

    async def aclose(self) -> None:
        for part in (self._snapshot, self._contact):
            if part is not None:
                await part.aclose()


def judged(verdict: Verdict) -> Answer:
    return verdict.status, PLAIN, f"{verdict}\n".encode()


def problem(status: HTTPStatus) -> Answer:
    return status, PLAIN, f"{status.phrase}\n".encode()
