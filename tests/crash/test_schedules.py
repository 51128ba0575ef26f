"""Workers that fire schedules die, and clocks go back: each tick has one job."""

from __future__ import annotations

from outlast import Outlast
from outlast.model.schedule import tick_of_key
from tests.support import Database, Process, Processes, eventually, wrong_clock

PATIENCE = 60.0  # seconds
WORKER = """
    import os
    from outlast import Outlast

    ol = Outlast(os.environ["DATABASE"], schema=os.environ["SCHEMA"])

    @ol.task(every=1, missed="all", overlap="allow")
    def beat() -> None: ...

    @ol.task
    def hello() -> None: ...

    ol.worker(reclaim_every=0.1, poll_max=0.2, lease=2.0).run()
    """


def start(database: Database, processes: Processes, **env: str) -> Process:
    place = {"DATABASE": database.url, "SCHEMA": database.schema}
    return processes.python(WORKER, env=place | env)


def ticks(ol: Outlast) -> list[float]:
    found = (tick_of_key(job.key) for job in ol.jobs(task="beat", limit=10_000))
    return sorted(tick.timestamp() for tick in found if tick is not None)


def test_killed_workers_neither_lose_nor_repeat_a_tick(
    database: Database, processes: Processes
) -> None:
    """R153: three workers, of which one after the other is killed and replaced."""
    with Outlast(database.url, schema=database.schema) as ol:
        ol.migrate()
        workers = [start(database, processes) for _ in range(3)]
        for round in range(4):
            eventually(lambda seen=2 * round: len(ticks(ol)) > seen, PATIENCE)
            workers.pop(0).kill()
            workers.append(start(database, processes))
        eventually(lambda: len(ticks(ol)) > 8, PATIENCE)
        found = ticks(ol)
        assert found == [found[0] + n for n in range(len(found))]


def test_a_clock_that_goes_back_repeats_no_tick(database: Database, processes: Processes) -> None:
    """R237: two hours, of a worker's machine; on SQLite its clock is the database's."""
    with Outlast(database.url, schema=database.schema) as ol:

        @ol.task
        def hello() -> None: ...

        ol.migrate()
        before = start(database, processes)
        eventually(lambda: len(ticks(ol)) > 2, PATIENCE)
        before.terminate()
        assert before.wait(PATIENCE) == 0
        fired, [schedule] = ticks(ol), ol.schedules()
        start(database, processes, **wrong_clock("-2h"))
        for _ in range(3):  # it works, and looks for what is due
            job = hello.enqueue()
            eventually(lambda id=job.id: ol.job(id).state == "succeeded", PATIENCE)
        found = ticks(ol)
        assert len(found) == len(set(found))
        if database.is_sqlite:
            assert found == fired
            assert ol.schedules()[0].next_at == schedule.next_at
        else:
            eventually(lambda: len(ticks(ol)) > len(fired), PATIENCE)
