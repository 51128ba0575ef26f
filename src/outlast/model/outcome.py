"""Outcomes: the next state of a job after an attempt, a pure decision from facts to a transition.

The worker turns the end of an attempt into an `AttemptEnd`, `decide` turns that into a
`Transition`, and `ops.finish` applies it if, and only if, the claim still holds.
"""

from __future__ import annotations

from typing import NamedTuple

from .breaker import Outage
from .claim import Claim
from .job import NewJob
from .lifecycle import Outcome, State
from .retry import MAX_DELAY_S, Retry
from .wait import Wait, WaitKind

Error = dict[str, str]


class AttemptEnd(NamedTuple):
    """The end of an attempt, before the job's next state is decided."""

    outcome: Outcome
    result: str | None = None  # JSON text
    error: Error | None = None
    delay: float | None = None  # requested by the handler; seconds
    jobs: tuple[NewJob, ...] = ()  # enqueued by the handler; inserted only on success
    outage: Outage | None = None  # the failure may be the dependency's
    quiet: bool = False  # released by a breaker, without record, event or log line
    wait: Wait | None = None  # the handler waits


class Transition(NamedTuple):
    """One guarded transition out of `running`."""

    claim: Claim
    outcome: Outcome
    to: State
    delay: float | None = None  # seconds until the job is due again; None keeps its position
    min_delay: float | None = None  # minimum requested by the handler; seconds
    result: str | None = None
    error: Error | None = None
    failures: int = 0
    crashes: int = 0
    refund: int = 0
    jobs: tuple[NewJob, ...] = ()
    outage: Outage | None = None
    quiet: bool = False
    trace: str | None = None  # the attempt's span, parent of the jobs that its end creates
    wait: Wait | None = None

    @property
    def is_simple_success(self) -> bool:
        """Whether only the job's row changes: a first-try success without follow-ups."""
        return self.to is State.SUCCEEDED and not self.jobs and self.claim.attempt == 1


def decide(claim: Claim, ended: AttemptEnd, retry: Retry, jitter: float) -> Transition:
    """The transition of the job."""
    match ended.outcome:
        case Outcome.SUCCEEDED:
            return Transition(
                claim, ended.outcome, State.SUCCEEDED, result=ended.result, jobs=ended.jobs
            )
        case Outcome.FAILED | Outcome.TIMED_OUT:
            return _failed(claim, ended, retry, jitter)
        case Outcome.PERMANENT | Outcome.UNDECODABLE:
            return Transition(claim, ended.outcome, State.DEAD, error=ended.error, failures=1)
        case Outcome.POSTPONED:
            return Transition(
                claim,
                ended.outcome,
                State.SCHEDULED,
                delay=min(ended.delay or 0.0, MAX_DELAY_S),
                error=ended.error,
                outage=ended.outage,
            )
        case Outcome.WAITED:
            assert ended.wait is not None
            return waits(claim, ended.wait)
        case Outcome.CANCELLED:
            return Transition(claim, ended.outcome, State.CANCELLED, error=ended.error)
        case Outcome.RELEASED:
            return release(claim, ended.delay, ended.error)._replace(quiet=ended.quiet)
        case Outcome.CRASHED:
            return crashed(claim, cancelling=False, error=ended.error or {})
        case Outcome.STALLED:
            return stalled(claim, 0, cancelling=False, error=ended.error or {})


def waits(claim: Claim, wait: Wait) -> Transition:
    """The handler waits: nothing is charged, and no slot is held."""
    to = State.SCHEDULED if wait.kind is WaitKind.SLEEP else State.WAITING
    delay = None if wait.due is not None else wait.delay
    return Transition(claim, Outcome.WAITED, to, delay=delay, refund=1, wait=wait)


def _failed(claim: Claim, ended: AttemptEnd, retry: Retry, jitter: float) -> Transition:
    failures = claim.failures + 1
    if failures >= claim.max_attempts:
        return Transition(
            claim, ended.outcome, State.DEAD, error=ended.error, failures=1, outage=ended.outage
        )
    min_delay = min(ended.delay or 0.0, MAX_DELAY_S)
    return Transition(
        claim,
        ended.outcome,
        State.SCHEDULED,
        delay=max(retry.delay(failures, jitter), min_delay),
        min_delay=min_delay or None,
        error=ended.error,
        failures=1,
        outage=ended.outage,
    )


def release(claim: Claim, delay: float | None = None, error: Error | None = None) -> Transition:
    """Release the job with its attempt unspent; a delay prevents an immediate claim from spinning.
    With a delay of 0 the job is ready, behind the others of its priority."""
    to = State.SCHEDULED if delay else State.READY
    return Transition(claim, Outcome.RELEASED, to, delay=delay, error=error, refund=1)


def counter_at_limit(claim: Claim) -> AttemptEnd:
    """The end of a claim whose row has exhausted its counters."""
    reason = f"its attempt ({claim.attempt}) or fence ({claim.fence}) is at the maximum"
    error = {
        "type": "CounterAtLimit",
        "message": f"{reason}: enqueue the call again",
        "traceback": "",
    }
    return AttemptEnd(Outcome.UNDECODABLE, error=error)


def unreceived(claim: Claim) -> Transition:
    """The claim never reached its worker: released unspent, unless the worker could not tell the
    next claim of the row from this one."""
    if not claim.at_limit:
        return release(claim)
    error = counter_at_limit(claim).error
    return Transition(claim, Outcome.UNDECODABLE, State.DEAD, error=error, failures=1)


def crashed(claim: Claim, *, cancelling: bool, error: Error) -> Transition:
    """The owner is gone: run the job again, unless it has cost too many workers already."""
    if cancelling:
        to = State.CANCELLED
    elif claim.crashes + 1 >= claim.max_crashes:
        to = State.DEAD
    else:
        to = State.READY
    return Transition(claim, Outcome.CRASHED, to, error=error, crashes=1)


def stalled(claim: Claim, before: int, *, cancelling: bool, error: Error) -> Transition:
    """The owner stopped renewing although its process exists: run the job elsewhere. `before`
    counts earlier stalls of the job. The first stalls charge no crash. The last but one makes the
    job a suspect: it then shares a process with no other suspect (`Claim.last_life`), so that the
    next stall ends the job that blocks its processes, and none of its neighbours."""
    stalls, suspect_at = before + 1, claim.max_crashes - 1
    if cancelling:
        return Transition(claim, Outcome.STALLED, State.CANCELLED, error=error)
    if stalls > suspect_at and (claim.one_crash_left or not suspect_at):
        return Transition(claim, Outcome.STALLED, State.DEAD, error=error)
    charge = max(0, suspect_at - claim.crashes) if stalls >= suspect_at else 0
    return Transition(claim, Outcome.STALLED, State.READY, error=error, crashes=charge)


def reason(error: object) -> str:
    """An error as one line for people."""
    if not isinstance(error, dict):
        return "no reason was recorded"
    kind, message = error.get("type", ""), error.get("message", "")
    return f"{kind}: {message}" if kind and message else kind or message or "no reason was recorded"
