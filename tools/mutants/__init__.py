"""Deliberate breakages of the protocol, each with the campaign that must notice it.

    enqueueing    jobs that come to be half, twice, or outside of the caller's transaction
    claiming      jobs claimed too early, twice, or by whoever must not
    limiting      lanes that run more than they may, or out of order
    owning        fences and leases that do not hold
    breaking      breakers that charge jobs, are probed by two, or never close
    batching      items that are charged with, or cleared by, what became of others
    finishing     outcomes that do not count, or count for too much
    durable       steps and completions that are kept when they must not be
    flowing       ends of which those whom they concern hear wrongly, twice, or never
    healing       nets that do not catch, or catch the living
    lease_trust   leases that are believed although they prove nothing
    keeping       budgets, records, pruning, the tables themselves
    scheduling    ticks that fire twice, never, or although they must not
    waiting       waits that are missed or decided twice, signals that are lost or taken twice
    streaming     output that is stored by whoever must not
    wedging       workers that stop for good
    outside       replaced files, moments and rows that nobody can read

Words are replaced in a copy of the package; a mutant whose words are not there any more is an
error, so each has to follow the source.
"""

from __future__ import annotations

from . import (
    batching,
    breaking,
    claiming,
    durable,
    enqueueing,
    finishing,
    flowing,
    healing,
    keeping,
    lease_trust,
    limiting,
    outside,
    owning,
    scheduling,
    streaming,
    waiting,
    wedging,
)
from .mutation import Mutant

MUTANTS: list[Mutant] = [
    *enqueueing.MUTANTS,
    *claiming.MUTANTS,
    *limiting.MUTANTS,
    *owning.MUTANTS,
    *finishing.MUTANTS,
    *batching.MUTANTS,
    *breaking.MUTANTS,
    *durable.MUTANTS,
    *flowing.MUTANTS,
    *healing.MUTANTS,
    *lease_trust.MUTANTS,
    *keeping.MUTANTS,
    *scheduling.MUTANTS,
    *outside.MUTANTS,
    *waiting.MUTANTS,
    *streaming.MUTANTS,
    *wedging.MUTANTS,
]
