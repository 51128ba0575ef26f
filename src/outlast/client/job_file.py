"""A temporary file of new jobs: a long enqueue holds one part of them in memory.

A small file stays in memory; a larger one is in the directory for temporary files (`$TMPDIR`),
without a name.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import fields
from operator import attrgetter
from tempfile import SpooledTemporaryFile
from typing import Self

from ..model.job import NewJob

MAX_BYTES_IN_MEMORY = 4_000_000

# Columns of jobs in flows are left out: such jobs are not written.
_NAMES = [
    spec.name
    for spec in fields(NewJob)
    if spec.name not in {"after", "sibling_of", "new_flows", "unit"}
]
_values = attrgetter(*_NAMES)


class JobFile:
    """Jobs that are in no flow, written once, and read as often as needed."""

    def __init__(self) -> None:
        self._file = SpooledTemporaryFile(MAX_BYTES_IN_MEMORY)  # noqa: SIM115 - closed on exit
        self.number = 0
        self.queues: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, jobs: Sequence[NewJob]) -> None:
        """Append a part."""
        self._file.write(json.dumps([_values(job) for job in jobs]).encode())
        self._file.write(b"\n")
        self.number += len(jobs)
        self.queues.update(job.queue for job in jobs)

    def parts(self) -> Iterator[list[NewJob]]:
        """The parts as they were written, each read on demand."""
        self._file.seek(0)
        for line in self._file:
            yield [NewJob(**dict(zip(_NAMES, row, strict=True))) for row in json.loads(line)]
