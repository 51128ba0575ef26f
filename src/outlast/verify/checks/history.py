"""I4: checks of a job's history, its attempts and events. Every claim ended once, each transition
is legal, and the row's counters agree with the record.

    claim 1   crashed     ready       crashes 1
    claim 2   released    ready       the attempt was not counted
    claim 3   failed      scheduled   failures 1
    claim 4   succeeded   succeeded   no record if it was the first attempt
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from ...model.lifecycle import QUEUED, Outcome, State
from .evidence import AttemptRow, JobRow

HistoryFinding = tuple[str, str]  # the orphan class, and the message

UNSPENT_OUTCOMES = (Outcome.RELEASED, Outcome.WAITED)  # the attempt is not counted
NOT_FATAL = (Outcome.SUCCEEDED, Outcome.POSTPONED, Outcome.CANCELLED, *UNSPENT_OUTCOMES)
CHARGED_OUTCOMES = {Outcome.FAILED, Outcome.TIMED_OUT, Outcome.PERMANENT, Outcome.UNDECODABLE}
CLOCK_ROUNDING_S = 0.05  # rounding of a clock
FINAL_OUTCOMES = {
    Outcome.PERMANENT,
    Outcome.UNDECODABLE,
    Outcome.CANCELLED,
}  # only a redrive continues


def history_findings(
    row: JobRow, records: Sequence[AttemptRow], redriven: int
) -> Iterator[HistoryFinding]:
    yield from missing_or_extra_records(row, records)
    yield from illegal_transitions(row, records, redriven)
    yield from wrong_counters(row, records, redriven)
    yield from state_mismatches(row, records, redriven)
    if row.state == State.DEAD:
        yield from early_deaths(row, records)
    if not redriven:
        yield from claims_over_budget(row, records)


def with_held_back(row: JobRow, records: Sequence[AttemptRow]) -> list[AttemptRow]:
    """Add claims that a circuit breaker released: they leave no record."""
    known = {record.fence: record for record in records}
    ended = row.state in (State.RUNNING, State.SUCCEEDED)
    full = [record for record in records if record.fence > row.fence]
    number = 1
    for fence in range(1, row.fence + 1):
        found = known.get(fence)
        if found is None and ended and fence == row.fence:
            break
        record = found or AttemptRow(row.id, fence, number, Outcome.RELEASED)
        number += record.outcome not in UNSPENT_OUTCOMES
        full.append(record)
    return full


def missing_or_extra_records(
    row: JobRow, records: Sequence[AttemptRow]
) -> Iterator[HistoryFinding]:
    """Claims without one record each; a running claim and a first-try success have none."""
    fences = Counter(record.fence for record in records)
    claims = set(range(1, row.fence + 1))
    open_claims = {row.fence} if row.state in (State.RUNNING, State.SUCCEEDED) else set()
    if beyond := sorted(set(fences) - claims):
        yield "zombie", f"claim {beyond[0]} has a record, and the row is at claim {row.fence}"
    if missing := sorted(claims - open_claims - set(fences)):
        yield "forgotten", f"claims {missing[:5]} ended unrecorded"
    if row.state == State.RUNNING and row.fence in fences:
        yield "zombie", f"claim {row.fence} runs, and has a record of its end"
    if twice := [fence for fence, times in fences.items() if times > 1]:
        yield "zombie", f"claim {twice[0]} ended {fences[twice[0]]} times"


def illegal_transitions(
    row: JobRow, records: Sequence[AttemptRow], redriven: int
) -> Iterator[HistoryFinding]:
    """Claims after a success, or after another final state without a redrive."""
    before = [record for record in records if record.fence < row.fence]
    if any(record.outcome == Outcome.SUCCEEDED for record in before):
        yield "zombie", "was claimed again after it had succeeded"
    if sum(record.outcome in FINAL_OUTCOMES for record in before) > redriven:
        yield "zombie", "was claimed again after it had ended, and was not redriven"


def state_mismatches(
    row: JobRow, records: Sequence[AttemptRow], redriven: int
) -> Iterator[HistoryFinding]:
    """The row has the state in which its last claim left it."""
    last = {record.outcome for record in records if record.fence == row.fence}
    if row.state == State.SUCCEEDED:
        at_once = row.attempt == 1 and not last
        if last != {Outcome.SUCCEEDED} and not at_once:
            message = f"its last claim was {', '.join(last)}" if last else "on record it never did"
            yield "mislabelled", f"is succeeded, and {message}"
    elif Outcome.SUCCEEDED in last:
        yield "mislabelled", f"is {row.state}, and its last claim succeeded"
    elif last & FINAL_OUTCOMES and row.state in QUEUED and not redriven:
        yield "zombie", f"is {row.state} although it had ended, and was not redriven"
    elif row.state == State.DEAD and row.fence == 0 and not row.failed_by_prerequisite:
        yield "mislabelled", "is dead, and was never claimed"


def claims_over_budget(row: JobRow, records: Sequence[AttemptRow]) -> Iterator[HistoryFinding]:
    """A job that has used up a budget is not claimed again."""
    before = Counter(record.outcome for record in records if record.fence < row.fence)
    failures = sum(before[kind] for kind in CHARGED_OUTCOMES)
    if before[Outcome.CRASHED] >= row.max_crashes:
        yield "poison", f"was claimed again after {before[Outcome.CRASHED]} crashes"
    if before[Outcome.STALLED] >= row.max_crashes:
        yield "poison", f"was claimed again after {before[Outcome.STALLED]} stalls"
    if failures >= row.max_attempts:
        yield "poison", f"was claimed again after {failures} failures"


def wrong_cancellations(
    row: JobRow, records: Sequence[AttemptRow], cancels: Sequence[str], redriven: int
) -> Iterator[HistoryFinding]:
    """Cancelled jobs were cancelled by a request, their owner or their expiry; and stay so."""
    last = [record.outcome for record in records if record.fence == row.fence]
    expired = isinstance(row.error, dict) and row.error.get("type") == "Expired"
    if row.state == State.CANCELLED:
        if not cancels and last != [Outcome.CANCELLED] and not expired:
            yield "mislabelled", "is cancelled without a request"
    elif cancels.count(State.CANCELLED) > redriven:
        yield "zombie", f"is {row.state} after it was cancelled, and was not redriven"


def early_claims(row: JobRow) -> Iterator[HistoryFinding]:
    """No job is claimed, or can be, before it is due."""
    if row.due_in > CLOCK_ROUNDING_S and row.state not in {
        State.SCHEDULED,
        State.WAITING,
        State.CANCELLED,
    }:
        yield "early", f"is {row.state}, and is due in {row.due_in:.1f} s"


def wrong_counters(
    row: JobRow, records: Sequence[AttemptRow], redriven: int
) -> Iterator[HistoryFinding]:
    """Counters match the record; a redrive resets them. Repeated stalls leave a job one crash short
    of the limit."""
    outcomes = Counter(record.outcome for record in records)
    expected = {
        "attempt": row.fence - sum(outcomes[kind] for kind in UNSPENT_OUTCOMES),
        "crashes": outcomes[Outcome.CRASHED],
        "failures": sum(outcomes[kind] for kind in CHARGED_OUTCOMES),
    }
    for name, most in expected.items():
        counter = getattr(row, name)
        stalled = row.max_crashes - 1 if name == "crashes" and outcomes[Outcome.STALLED] else 0
        if counter > most + stalled or (counter < most and not redriven):
            yield "miscounted", f"{name} is {counter}, the record says {most}"
    if not redriven:
        yield from _wrong_attempt_numbers(records)


def _wrong_attempt_numbers(records: Sequence[AttemptRow]) -> Iterator[HistoryFinding]:
    """Attempts are numbered in order; a released one passes its number to the next."""
    number = 1
    for record in sorted(records, key=lambda record: record.fence):
        if record.attempt != number:
            message = f"claim {record.fence} is recorded as attempt {record.attempt}, was {number}"
            yield "miscounted", message
            return
        number += record.outcome not in UNSPENT_OUTCOMES


def early_deaths(row: JobRow, records: Sequence[AttemptRow]) -> Iterator[HistoryFinding]:
    """A job is dead for a reason, and not before its budget is used up."""
    last = [record.outcome for record in records if record.fence == row.fence]
    match last:
        case [Outcome.CRASHED] if row.crashes < row.max_crashes:
            yield "mislabelled", f"is dead after {row.crashes} of {row.max_crashes} crashes"
        case [Outcome.STALLED]:
            stalls = sum(record.outcome == Outcome.STALLED for record in records)
            if stalls < row.max_crashes:
                yield "mislabelled", f"is dead after {stalls} of {row.max_crashes} stalls"
        case [Outcome.FAILED | Outcome.TIMED_OUT] if row.failures < row.max_attempts:
            yield "mislabelled", f"is dead after {row.failures} of {row.max_attempts} failures"
        case [outcome] if outcome in NOT_FATAL:
            yield "mislabelled", f"is dead, and its last claim was {last[0]}"
