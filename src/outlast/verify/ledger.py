"""Ledger: an append-only file in which handlers and callers record actions and responses.

Each line is one write with O_APPEND, so that lines of many processes never mix and a killed process
leaves a whole line or none. The ledger is independent of Outlast: it is the witness.

    began      a handler started                        job, fence
    ended      a handler is about to return             job, fence, number of jobs it enqueued
    promised   the job was acknowledged                 job, the states in which it may end
    refused    its transaction will be rolled back      job
    never      the job must not run from this claim on  job, fence
    together   jobs that exist all or none              queue, number
    beside     a job and a row of the caller's exist both or neither  queue
    told       response to an owner: whether its write was accepted   job, fence, [outcome, yes/no]
    took       another owner has the job                              job, fence
    kept       response to a former owner: whether it is the owner    job, fence, yes/no
    flow       the flow was acknowledged                              flow, its jobs as requested
    stopped    a cancel of a flow has returned                        flow, its jobs' claims
    read       a follower read the results of its prerequisites       job, fence, [job, fence] each
    robbed     an owner lost its job before its lease expired         job, fence
    did        a step was run                                         job, fence, its name
    stepped    response to the caller: whether a step is stored       job, fence, [name, yes/no]
    wrote      a row of the handler's own, to commit with its end     job, fence, [the row, in time]
    saw        a violation that the scenario itself detected          queue, message
    queued     a job of a limited queue exists                        job, [queue, lane]
    entered    a handler holds its slot, or runs for its tick         job, fence, facts
    left       the handler is about to return (failed: to fail)       job, fence, facts
    limits     limits are to change, and have changed                 queue, [limits, asked/changed]
    schedule   an operator's call is made, and has returned           name, [call, stage, facts]
    accepted   an outcome was accepted                  job, fence, [owner, port of the server]
    outdated   an outcome was refused                   job, fence
    route      a process connects by this address       its name
    clock      the offset of the database's clock from the monotonic  seconds
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One line: an event of a job (or queue), with the claim."""

    kind: str
    subject: str
    fence: int = 0
    data: Any = None
    pid: int = 0
    at: float = 0.0  # time.monotonic(), which all processes of one machine share


class Ledger:
    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, kind: str, subject: str, fence: int = 0, data: object = None) -> None:
        line = json.dumps([kind, subject, fence, data, os.getpid(), time.monotonic()]) + "\n"
        fd = os.open(self.path, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o600)
        try:
            os.write(fd, line.encode())
        finally:
            os.close(fd)

    def read(self) -> Iterator[LedgerEntry]:
        if not self.path.exists():
            return
        with self.path.open() as lines:
            for line in lines:
                if line.endswith("\n"):
                    yield LedgerEntry(*json.loads(line))


class Tail:
    """A ledger that other processes write: each read returns the new entries."""

    def __init__(self, ledger: Ledger) -> None:
        self.path = ledger.path
        self._at = 0

    def read(self) -> Iterator[LedgerEntry]:
        if not self.path.exists():
            return
        with self.path.open("rb") as lines:
            lines.seek(self._at)
            for line in lines:
                if not line.endswith(b"\n"):
                    return
                self._at += len(line)
                yield LedgerEntry(*json.loads(line))
