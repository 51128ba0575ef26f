"""Load of waiting jobs: an enqueuer, and senders of early, double and late signals, which may be
killed. Signals have keys, so each sender can send all of them again."""

from __future__ import annotations

import faulthandler
import random
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from ..model.errors import OutlastError
from ..model.job import Job
from ..model.lifecycle import FINAL
from .load import EXPECTED_ERRORS, Gate
from .wait_tasks import MAYBE, SIGNAL

if TYPE_CHECKING:
    from .workload import Workload

MAX_LIVE = 150  # jobs in the table above which no more are enqueued
JOBS_PER_CALL = 10
NAP_RANGE_S, TIMEOUT_RANGE_S = (0.0, 0.1), (0.05, 0.8)
MAYBE_SHARE = 0.5  # of jobs that wait for a signal that may come too late
OWN_TRANSACTION_SHARE, ROLLBACK_SHARE = 0.3, 0.3


def run_wait_load(work: Workload, gate: Gate, seed: int, number: int) -> None:
    """In a child: enqueue jobs that wait, while there is room."""
    faulthandler.cancel_dump_traceback_later()
    rng = random.Random(seed + number)
    while gate.state != Gate.SHUT:
        try:
            counts = work.ol.counts()
            if sum(count for state, count in counts.items() if state not in FINAL) > MAX_LIVE:
                time.sleep(0.05)
                continue
            calls = [
                work.waiting.waits.job(
                    signals=rng.randint(0, 3),
                    nap=rng.uniform(*NAP_RANGE_S) if rng.random() < 0.3 else 0.0,
                    timeout=rng.uniform(*TIMEOUT_RANGE_S) if rng.random() < MAYBE_SHARE else None,
                )
                for _ in range(JOBS_PER_CALL)
            ]
            for job in work.ol.enqueue(*calls):
                work.ledger.write("promised", job.id, 0, ["succeeded"])
        except EXPECTED_ERRORS:
            time.sleep(0.05)


def run_sender(work: Workload, seed: int, number: int) -> None:
    """In a child, until it is killed: send the signals of all unfinished jobs repeatedly, some in
    the sender's own transaction, which may be rolled back."""
    faulthandler.cancel_dump_traceback_later()
    rng = random.Random(seed * 1000 + number)
    while True:
        try:
            live = [
                job
                for state in ("waiting", "scheduled", "ready", "running")
                for job in work.ol.jobs(state=state, limit=MAX_LIVE)
            ]
            rng.shuffle(live)
            for job in live:
                send_signals(work, job, rng)
            time.sleep(0.01)
        except EXPECTED_ERRORS:
            time.sleep(0.05)


def send_signals(work: Workload, job: Job, rng: random.Random) -> None:
    """Send some of the signals of a job in order, each after the one before it has arrived."""
    with suppress(OutlastError):  # the job has ended or was removed
        number = rng.randint(0, int(job.args["signals"]))
        if rng.random() < OWN_TRANSACTION_SHARE:
            _send_in_transaction(work, job.id, number, rng)
        else:
            work.waiting.send(job.id, number)
        if job.args.get("timeout") and rng.random() < 0.3:
            work.waiting.send(job.id, 1, MAYBE)
            number += 1
        work.ledger.write("sent", job.id, 0, number)


def _send_in_transaction(work: Workload, id: str, number: int, rng: random.Random) -> None:
    with work.workspace.connect() as connection:
        work.waiting.send(id, number, SIGNAL, conn=connection)
        time.sleep(rng.uniform(0.0, 0.02))
        if rng.random() < ROLLBACK_SHARE:
            connection.rollback()
        else:
            connection.commit()
