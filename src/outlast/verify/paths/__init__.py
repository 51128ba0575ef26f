"""Everything that can happen to a job, each as a short piece of code to be killed in.

A path is a generator: what comes before its `yield` prepares, what comes after is done under the
trap. What somebody was told on the way, it tells the ledger, and the judge does the rest.

    enqueueing    a call becomes a row, alone, in bulk, or in the caller's transaction
    holding       claim, renew, report, release
    finishing     the one way out of running, in all outcomes
    steering      what people do: cancel, redrive, pause
    healing       reclaim, expire, promote, prune, the other duties
    flowing       jobs that wait for each other, added to, cancelled together, brought back
    auditing      what finds and heals what the others left
    durable       steps, and completions with the handler's own writes
    offering      jobs on their way to remote workers
    breaking      an outage of what a task depends on
    working       whole worker processes
    wedging       what could stop a worker for good
    stale_claims  claims that no longer hold, told by their fence or their owner alone
    living        those whom no net may catch;  meeting  two at once;  waiting  what is not due yet
    lease_trust   leases that prove nothing: stepped clocks, foreign locks, wedged processes
    unheard       a wake-up or an answer that got lost
    guarding      tokens, secrets, and what is to be forgotten
    migrating     the tables themselves
    outside       what others do to the database: files that are replaced, rows that are spoiled
"""

from __future__ import annotations

from . import (
    auditing,
    breaking,
    durable,
    enqueueing,
    finishing,
    flow_meeting,
    flowing,
    guarding,
    healing,
    holding,
    lease_trust,
    living,
    meeting,
    migrating,
    offering,
    outside,
    stale_claims,
    steering,
    unheard,
    waiting,
    wedging,
    working,
)
from .path import LATER, PATHS, Path, perform

__all__ = ["LATER", "PATHS", "Path", "perform"]

_MODULES = (enqueueing, holding, finishing, steering, healing, auditing, durable, working,
            migrating, living, meeting, waiting, unheard, flowing, flow_meeting,
            guarding, offering, outside, stale_claims, breaking, lease_trust,
            wedging)  # fmt: skip
