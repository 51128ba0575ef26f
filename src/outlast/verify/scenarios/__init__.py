"""Scenarios: every action on a job, each a short generator that can be killed at any statement.

The code before a scenario's `yield` prepares; the code after it runs under the interceptor. A
scenario records the responses in the ledger, and the judge compares them with the tables.

    enqueue             a call becomes a row: alone, in bulk, or in the caller's transaction
    unique_keys         unique keys, debounce, full queues, quotas
    claims              claim, renew, report, release
    lanes               claims of limited queues, tokens, first limits, paused and closed lanes
    finish              the one way out of running, in all outcomes
    job_actions         operators: cancel, redrive, pause
    maintenance         reclaim, expire, promote, prune and the other duties
    flows               jobs that wait for each other; flow_races  two processes at once on them
    audit               the checks that find and repair inconsistent rows
    steps               durable steps, and completions with the handler's own writes
    waits               sleeps, signals, waits for other jobs
    streams             output of running jobs
    offers              jobs on their way to remote workers
    breakers            an outage of a dependency
    schedules           jobs by the clock: one per tick
    whole_workers       whole worker processes
    stuck_workers       conditions that could stop a worker for good
    stale_claims        claims that no longer hold: an old fence or another owner
    no_false_positives  living owners that nothing may reclaim from
    races               two processes at once on the same job
    not_due             jobs that must not be claimed yet
    lease_trust         leases that prove nothing: stepped clocks, foreign locks, hung processes
    lost_answers        a lost notification or a lost response
    tokens              tokens, secrets, and erasure
    migrate             migrations of the tables
    database_faults     replaced files, damaged rows, wrong databases
"""

from __future__ import annotations

from . import (
    audit,
    breakers,
    claims,
    database_faults,
    enqueue,
    finish,
    flow_races,
    flows,
    job_actions,
    lanes,
    lease_trust,
    lost_answers,
    maintenance,
    migrate,
    no_false_positives,
    not_due,
    offers,
    races,
    schedules,
    stale_claims,
    steps,
    streams,
    stuck_workers,
    tokens,
    unique_keys,
    waits,
    whole_workers,
)
from .scenario import ARM_LATER, SCENARIOS, Scenario, run_scenario

__all__ = ["ARM_LATER", "SCENARIOS", "Scenario", "run_scenario"]

_MODULES = (enqueue, claims, finish, job_actions, maintenance, audit, steps, whole_workers,
            migrate, no_false_positives, races, not_due, lost_answers, flows, flow_races,
            tokens, offers, database_faults, stale_claims, breakers, lease_trust,
            stuck_workers, schedules, unique_keys, lanes, waits,
            streams)  # fmt: skip
