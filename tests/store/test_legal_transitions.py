"""Only legal transitions, whatever is called, in whatever order, from however many threads."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress

import pytest

from outlast import KeyConflict, PrerequisiteFailed, TooLate
from outlast.model.claim import Claim
from outlast.model.flow import group
from outlast.model.flow_builder import build_jobs
from outlast.model.job_change import JobChange
from outlast.model.lifecycle import LEGAL
from outlast.model.options import WHEN
from outlast.model.outcome import Transition
from outlast.model.wait import Wait, WaitKind
from outlast.ops import duties, flow_repair, job_actions
from outlast.ops.audit import LOWEST_ID, find
from outlast.ops.bulk import change_some
from outlast.ops.cancel_flow import cancel_page, mark_cancelled
from outlast.ops.claim import promote
from outlast.ops.enqueue import enqueue
from outlast.ops.finish import finish
from outlast.ops.reclaim import reclaim
from outlast.ops.renew import renew
from outlast.ops.signals import NewSignal, send_signal
from outlast.ops.wake_ups import deliver_signals, wake_timed_out
from outlast.store import Store
from tests.store import audit
from tests.store.crowd import all_at_once
from tests.store.flowing import call, stuck
from tests.store.jobs import column, end_leases, ending, make_due, new, table, take
from tests.support import Database

OUTCOMES = [
    "succeeded", "failed", "timed-out", "permanent", "postponed", "cancelled", "released",
    "crashed", "undecodable", "waited", "waited",
]  # fmt: skip
THREADS = 20


class Monkey:
    """Calls anything at any time, with claims that may be its own, another's, stale or invented."""

    def __init__(self, store: Store, database: Database, seed: int, shared: Monkeys) -> None:
        self.store, self.database, self.shared = store, database, shared
        self.luck = random.Random(seed)
        self.name = f"w{seed}"
        self.asked = 0

    def act(self) -> None:
        weights = {
            self.enqueue: 3, self.claim: 8, self.finish: 10, self.renew: 3, self.cancel: 3,
            self.redrive: 3, self.reclaim: 2, self.lose: 1, self.hurry: 1, self.keep_house: 2,
            self.pause: 1, self.follow: 2, self.cancel_flow: 1, self.change: 2, self.once: 3,
            self.signal: 3,
        }  # fmt: skip
        action: Callable[[], int] = self.luck.choices(
            list(weights), weights=list(weights.values())
        )[0]
        self.asked += action()

    def enqueue(self) -> int:
        said = [
            new(
                key=self.luck.choice([None, None, f"k{self.luck.randrange(50)}"]),
                delay=self.luck.choice([None, None, 0.001, 60.0]),
                expires_in=self.luck.choice([None, None, 0.001, 60.0]),
                max_attempts=self.luck.randint(1, 3),
                max_crashes=self.luck.randint(1, 3),
            )
            for _ in range(self.luck.randint(1, 10))
        ]
        self.shared.ids += [one.id for one in self.store.run(enqueue, said)]
        return len(said)

    def once(self) -> int:
        """Unique jobs and debounced ones, of a few keys."""
        mode = self.luck.choice(["waiting", "active", "period", "debounce"])
        span = {"period": 0.05, "debounce": 0.001}.get(mode)
        key = f"u{self.luck.randrange(5)}"
        delay = span if mode == "debounce" else None
        asked = [new(key=key, unique_mode=mode, unique_span=span, max_wait=span, delay=delay)]
        self.shared.ids += [one.id for one in self.store.run(enqueue, asked)]
        return 1

    def change(self) -> int:
        """What operators do to jobs that wait."""
        moment = self.luck.choice([0.0, 0.001, 60.0])
        change = self.luck.choice([JobChange.reschedule(moment, None), JobChange.prioritize(1)])
        ids = self._ids(20)
        self.store.run(change_some, ids, self.luck.choice(["ready", "scheduled"]), change, "op")
        return len(ids)

    def follow(self) -> int:
        """Some that come after others, and a flow, sometimes with some that are to join it."""
        delay = self.luck.choice([None, None, 60.0])
        before = tuple(self._ids(self.luck.randint(1, 3)))
        needs = self.luck.choice(WHEN)
        later = new(after=before, waits_for=len(before), needs=needs, delay=delay)
        flow = build_jobs([group(call(1), call(2, max_attempts=1)).then(call(3), call(4))])
        try:
            self.shared.ids += [one.id for one in self.store.run(enqueue, flow)]
            self.shared.flows.append(str(flow[0].flow))
            self.shared.ids += [one.id for one in self.store.run(enqueue, [later])]
        except PrerequisiteFailed:
            return 4
        return 5

    def cancel_flow(self) -> int:
        for flow in self.shared.flows[-20:][:1]:
            why = self.store.run(mark_cancelled, flow, self.name, "")
            while (done := self.store.run(cancel_page, flow, why)).left and (
                done.ended or done.stopping
            ):
                pass
        return 4

    def claim(self) -> int:
        wanted = self.luck.randint(1, 20)
        lease = self.luck.choice([0.001, 60.0])
        self.shared.claims += take(self.store.run, wanted, worker=self.name, lease=lease)
        return wanted

    def finish(self) -> int:
        claims = self._claims()
        self.store.run(finish, [self._end(one, self.luck.choice(OUTCOMES)) for one in claims])
        return len(claims)

    def _end(self, claim: Claim, outcome: str) -> Transition:
        if outcome != "waited":
            return ending(claim, outcome)
        awaits = next(iter(self._ids(1)), claim.id)
        late = self.luck.choice([None, 0.001, 60.0])
        wait = self.luck.choice([
            Wait("sleep", WaitKind.SLEEP, delay=self.luck.choice([0.001, 60.0])),
            Wait("signal", WaitKind.SIGNAL, ("a", "b"), late),
            Wait("job", WaitKind.JOB, (awaits,), late, awaits=awaits),
        ])  # fmt: skip
        return ending(claim, outcome, wait=wait)

    def signal(self) -> int:
        """Signals, some in time, and what any worker does for waits."""
        for id in self._ids(3):
            with suppress(TooLate):
                sent = NewSignal(id, self.luck.choice("abc"), "1")
                self.store.run(send_signal, sent, self.name, lambda *_: None)
        self.store.run(wake_timed_out, 20)
        self.store.run(deliver_signals, 20)
        return 3

    def renew(self) -> int:
        held = {one.id: one.fence for one in self._claims()}
        self.store.run(renew, self.name, held, self.luck.choice([0.001, 60.0]))
        return len(held)

    def cancel(self) -> int:
        for id in self._ids(3):
            try:
                self.store.run(job_actions.cancel, id, self.name, "")
            except TooLate:
                continue
        return 3

    def redrive(self) -> int:
        ids = self._ids(20)
        self.store.run(job_actions.redrive, ids, self.name)
        return len(ids)

    def reclaim(self) -> int:
        return self.store.run(reclaim, 20).found

    def lose(self) -> int:
        """Time passes: some leases run out."""
        digit = self.luck.choice("0123456789abcdef")
        end_leases(self.database, f"state = 'running' AND CAST(id AS text) LIKE '%{digit}'")
        return 1

    def hurry(self) -> int:
        make_due(self.database)
        self.store.run(promote, 20)
        return 20

    def keep_house(self) -> int:
        return len(self.store.run(duties.expire, 20))

    def pause(self) -> int:
        self.store.run(job_actions.set_paused, "default", self.luck.random() < 0.2, self.name)
        return 1

    def _ids(self, number: int) -> list[str]:
        return self.luck.sample(self.shared.ids[-300:], min(number, len(self.shared.ids[-300:])))

    def _claims(self) -> list[Claim]:
        recent = self.shared.claims[-200:]
        chosen = self.luck.sample(recent, min(self.luck.randint(1, 20), len(recent)))
        invented = [one._replace(fence=one.fence + 1) for one in chosen[:1]]
        return list({one.claim_key: one for one in chosen + invented}.values())


class Monkeys:
    """What they tell each other."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.claims: list[Claim] = []
        self.flows: list[str] = []


@pytest.mark.slow_on("postgres")
@pytest.mark.kinds("sqlite", "postgres")
@pytest.mark.parametrize(
    ("calls", "changes"),
    [
        pytest.param(2_500, 17_000, marks=pytest.mark.timeout(600)),
        pytest.param(100_000, 650_000, marks=[pytest.mark.campaign, pytest.mark.timeout(0)]),
    ],
    ids=["sample", "full"],
)
def test_no_call_from_any_thread_makes_an_illegal_transition(
    store: Store, database: Database, calls: int, changes: int
) -> None:
    """R110, R203: random calls from 20 threads that ask for tens of thousands of changes
    (100,000 calls on each database in a campaign), judged by a witness in the database: I4 = 0."""
    audit.watch(database)
    shared = Monkeys()
    store.run(enqueue, [new() for _ in range(50)])

    def play(seed: int) -> int:
        monkey = Monkey(store, database, seed, shared)
        for _ in range(calls // THREADS):
            try:
                monkey.act()
            except KeyConflict as error:
                raise AssertionError("all calls are equal") from error
        return monkey.asked

    asked = sum(all_at_once(THREADS, play))
    assert asked > changes, "too tame"
    assert audit.violations(database) == []
    made = set(audit.seen(database))
    every = {(str(a), str(b)) for a, to in LEGAL.items() for b in to}
    assert made == every, "every legal transition was seen, and no other"
    fences = sum(column(database, "fence"))
    claims = database.rows(
        "SELECT count(*) FROM audit WHERE before = 'ready' AND after = 'running'"
    )
    assert claims == [(fences,)]
    assert _forgotten_claims(database) == [], "every claim's end is on record"
    assert stuck(database) == 0
    while store.run(wake_timed_out).found:
        pass
    assert store.run(find, "find_unwoken", 1_000_000, 0, late=0.0) == [], "no wake-up was missed"
    assert store.run(flow_repair.inconsistent_waits, LOWEST_ID, 1_000_000)[0] == {}, (
        "every count is true"
    )


def _forgotten_claims(database: Database) -> list[tuple[str, list[int]]]:
    """Claims of which neither an attempt's record nor the row itself says how they ended."""
    recorded: dict[str, set[int]] = {}
    attempts = f"SELECT CAST(job AS text), fence FROM {table(database, 'attempt')}"
    for job, fence in database.rows(attempts):
        recorded.setdefault(job, set()).add(fence)
    forgotten = []
    rows = f"SELECT CAST(id AS text), state, fence FROM {table(database, 'job')}"
    for job, state, fence in database.rows(rows):
        shown = {fence} if state in ("running", "succeeded") else set()
        if missing := set(range(1, fence + 1)) - recorded.get(job, set()) - shown:
            forgotten.append((job, sorted(missing)))
    return forgotten
