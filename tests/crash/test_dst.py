"""Days on which clocks change, with real workers: each tick has one job, in gap and fold."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from outlast import Outlast
from outlast.model.schedule import tick_of_key
from outlast.verify.faults.faketime import SteppedClock
from tests.support import Process, Processes, eventually
from tests.support.postgres import Postgres
from tests.support.requirements import require_program

PATIENCE = 60.0  # seconds
WORKERS = 3
EARLY_S = 3  # before a moment that matters, the clock is set
ZONES = ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Chatham"]
QUICK = "Australia/Lord_Howe"  # by half an hour
WORKER = """
    import os
    from outlast import Outlast

    ol = Outlast(os.environ["DATABASE"])
    zone, fixed, minute = os.environ["ZONE"], os.environ["FIXED"], os.environ["MINUTE"]

    @ol.task(cron=fixed, tz=zone, missed="all", overlap="allow")
    def once_a_day() -> None: ...

    @ol.task(cron=f"{minute} * * * *", tz=zone, missed="all", overlap="allow")
    def once_an_hour() -> None: ...

    @ol.task(cron="*/5 * * * *", tz=zone, missed="all", overlap="allow")
    def often() -> None: ...

    ol.worker(reclaim_every=0.1, poll_max=0.2, lease=2.0).run()
    """


@dataclass(frozen=True)
class Change:
    """A change of a zone's clocks: a gap on the wall, or a fold."""

    zone: str
    at: datetime
    before: timedelta  # what clocks are ahead of UTC
    after: timedelta

    @property
    def gap(self) -> bool:
        return self.after > self.before

    @property
    def inside(self) -> datetime:
        """A time on the wall in the middle of what is skipped, or shown twice."""
        wall = self.at.replace(tzinfo=None) + (self.before + self.after) / 2
        return wall.replace(minute=wall.minute // 5 * 5)

    @property
    def fixed_tick(self) -> datetime:
        """When that time of the day comes: at the end of the gap, or the first time."""
        return self.at if self.gap else (self.inside - self.before).replace(tzinfo=UTC)

    def shown(self, minute: int | None) -> list[datetime]:
        """Moments at which a clock on the wall shows this minute, or any of five minutes."""
        found, moment = [], self.start
        while (moment := moment + timedelta(minutes=1)) <= self.end:
            wall = moment.astimezone(ZoneInfo(self.zone))
            if wall.minute == minute or (minute is None and wall.minute % 5 == 0):
                found.append(moment)
        return found

    @property
    def start(self) -> datetime:
        return self.at - timedelta(hours=1, minutes=3)  # none of five minutes

    @property
    def end(self) -> datetime:
        return self.at + timedelta(hours=1, minutes=5)

    @property
    def moments(self) -> list[datetime]:
        """Those to live through; the clock jumps from one to the next."""
        inside = [
            (self.inside - offset).replace(tzinfo=UTC) for offset in (self.before, self.after)
        ]
        return sorted({*inside, self.at, self.end})


def next_change(zone: str, *, gap: bool) -> Change:
    """The next one from now."""
    now = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    quarters = (now + n * timedelta(minutes=15) for n in range(4 * 24 * 400))
    for before, after in pairwise(quarters):
        offsets = [moment.astimezone(ZoneInfo(zone)).utcoffset() for moment in (before, after)]
        change = Change(zone, after, offsets[0] or timedelta(), offsets[1] or timedelta())
        if offsets[0] != offsets[1] and change.gap == gap:
            return change
    raise AssertionError(f"the clocks of {zone} do not change")


@dataclass
class Place:
    """A database whose clock can be set, and workers of it."""

    url: str
    clock: SteppedClock
    environment: dict[str, str]  # of workers

    def set_clock(self, moment: datetime) -> None:
        self.clock.set(int(moment.timestamp() - time.time()) - EARLY_S)


@pytest.fixture
def place(store: str, tmp_path: Path) -> Iterator[Place]:
    """On SQLite, the workers have the clock; PostgreSQL is a server that has it."""
    require_program("faketime")
    if store == "sqlite":
        clock = SteppedClock(tmp_path / "clock")
        yield Place(f"sqlite:///{tmp_path / 'jobs.db'}", clock, clock.environment)
        return
    server = Postgres()
    try:
        clock = SteppedClock(server.folder / "clock")
        server.environment = clock.environment
        server.start()
        yield Place(server.url(), clock, {})
    finally:
        server.destroy()


def start(place: Place, change: Change, processes: Processes) -> Process:
    wall = change.inside
    given = {"ZONE": change.zone, "FIXED": f"{wall.minute} {wall.hour} * * *"}
    given |= {"MINUTE": str(wall.minute), "DATABASE": place.url}
    return processes.python(WORKER, env=given | place.environment)


def ticks(ol: Outlast, task: str) -> list[datetime]:
    found = (tick_of_key(job.key) for job in ol.jobs(task=task, limit=10_000))
    return sorted(tick for tick in found if tick is not None)


def live_through(place: Place, change: Change, processes: Processes) -> None:
    with Outlast(place.url) as ol:
        place.set_clock(change.start)
        ol.migrate()
        workers = [start(place, change, processes) for _ in range(WORKERS)]
        eventually(lambda: len(ol.schedules()) == 3, PATIENCE, message=workers[0].output)
        often = change.shown(None)
        for moment in change.moments:
            place.set_clock(moment)
            due = [tick for tick in often if tick <= moment - timedelta(minutes=5)]
            eventually(lambda due=due: set(due) <= set(ticks(ol, "often")), PATIENCE)
            workers.pop(0).kill()  # while the moment comes
            workers.append(start(place, change, processes))
            due = [tick for tick in often if tick <= moment]
            eventually(lambda due=due: set(due) <= set(ticks(ol, "often")), PATIENCE)
        assert ticks(ol, "often") == often
        assert ticks(ol, "once_an_hour") == change.shown(change.inside.minute)
        assert ticks(ol, "once_a_day") == [change.fixed_tick]


@pytest.mark.parametrize(
    ("store", "gap"),
    [
        pytest.param("sqlite", True, id="sqlite-gap"),
        pytest.param("postgres", False, id="postgres-fold", marks=pytest.mark.slow),
        # Which ticks there are is decided without a store: tests/model/test_schedule.py has both.
        pytest.param("sqlite", False, id="sqlite-fold", marks=pytest.mark.campaign),
        pytest.param("postgres", True, id="postgres-gap", marks=pytest.mark.campaign),
    ],
)
def test_half_an_hour_that_is_skipped_or_comes_twice_has_each_tick_once(
    place: Place, processes: Processes, gap: bool
) -> None:
    """R153, R235: three workers, of which one is killed whenever a moment that matters comes."""
    live_through(place, next_change(QUICK, gap=gap), processes)


@pytest.mark.campaign
@pytest.mark.timeout(300)
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
@pytest.mark.parametrize("gap", [True, False], ids=["gap", "fold"])
@pytest.mark.parametrize("zone", [zone for zone in ZONES if zone != QUICK])
def test_the_days_on_which_clocks_change_have_each_tick_once(
    place: Place, processes: Processes, zone: str, gap: bool
) -> None:
    """R153, R235: the same in other zones; one of them is 12 h 45 min ahead."""
    live_through(place, next_change(zone, gap=gap), processes)


def test_the_changes_are_where_they_are_known_to_be() -> None:
    """What is expected does not come from what is tested."""
    berlin = next_change("Europe/Berlin", gap=True)
    assert (berlin.at.hour, berlin.inside.hour, berlin.inside.minute) == (1, 2, 30)
    howe = next_change("Australia/Lord_Howe", gap=False)
    assert howe.before - howe.after == timedelta(minutes=30)
    assert (howe.inside.hour, howe.inside.minute) == (1, 45)
    chatham = next_change("Pacific/Chatham", gap=True)
    assert (chatham.inside.hour, chatham.inside.minute) == (3, 15)
