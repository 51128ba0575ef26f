"""`outlast doctor` names every orphan that rows can show, and says which net has stopped."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import pytest

from outlast import Outlast
from outlast.ops import workers as worker_ops
from outlast.store import Store
from outlast.worker import maintenance
from tests.cli.conftest import Commands, patiently
from tests.cli.test_doctor import examined
from tests.store.jobs import put_and_take, table
from tests.store.test_audit import CARD, CLASSES, force, moment
from tests.support import Database, aeventually
from tests.support.calm import seasoned
from tests.support.maintenance import healer_of

SHOWN = [(name, make) for name, make, _ in CLASSES if name != "leaked-slot"]


@pytest.mark.parametrize(("name", "make"), SHOWN, ids=lambda value: getattr(value, "__name__", ""))
def test_every_orphan_is_shown_by_its_name(
    run: Commands,
    ol: Outlast,
    database: Database,
    name: str,
    make: Callable[[Store, Database], None],
) -> None:
    """R199: with one of its jobs to look at, and gone when it is healed."""
    ol.migrate()
    make(ol.store, database)
    code, found = examined(run)
    assert (code, found[name]["problem"]) == (1, True)
    id = found[name]["advice"].rpartition(" ")[2]
    assert run("job", id, "--json").json["id"] == id

    async def heal() -> None:
        healer = seasoned(healer_of(ol, ol.store))
        await healer.duties.duty("audit", healer.auditor.audit, 60.0)()
        await ol.aclose()

    asyncio.run(heal())
    _, found = examined(run)
    assert found[name]["problem"] is False
    assert "found 1 of these so far: 1 healed" in found[name]["sentence"]


def test_what_jobs_that_are_gone_left_is_worth_knowing(
    run: Commands, ol: Outlast, database: Database
) -> None:
    """R088"""
    held = put_and_take(ol.store.run)
    from tests.store.jobs import end

    end(ol.store.run, held, "failed")
    assert "left-behind" not in examined(run)[1]
    database.rows(f"DELETE FROM {table(database, 'job')}")
    database.rows(f"DELETE FROM {table(database, 'event')}")
    _, found = examined(run)
    assert found["left-behind"]["sentence"] == ("There are attempts of 1 job that no longer exist.")


def test_a_net_that_has_not_succeeded_for_three_periods_is_late(
    run: Commands, ol: Outlast, database: Database
) -> None:
    """R089, `stalled-net`: each of them, and not before."""
    ol.store.run(worker_ops.register, CARD | {"lease": 9999.0})

    async def all_once() -> None:
        for loop in seasoned(healer_of(ol, ol.store)).loops():
            assert await loop.astep() > 0 and loop.failures == 0
        await ol.aclose()

    asyncio.run(all_once())
    assert examined(run) == (0, {})
    set_duty, since = f"UPDATE {table(database, 'duty')} SET succeeded_at", moment(database, -9000)
    database.rows(f"UPDATE {table(database, 'worker')} SET started_at = {since}")
    for duty in ol.duties():
        if duty.name not in ("reclaim", "deadline", "expire", "prune", "audit"):
            continue
        late = max(5.0, 3 * duty.every)
        database.rows(f"{set_duty} = {moment(database, 2 - late)} WHERE name = '{duty.name}'")
        assert "stalled-net" not in examined(run)[1], duty.name
        database.rows(f"{set_duty} = {moment(database, -late - 1)} WHERE name = '{duty.name}'")
        assert f"'{duty.name}' last ran" in examined(run)[1]["stalled-net"]["sentence"]
        database.rows(f"{set_duty} = {moment(database, 0)} WHERE name = '{duty.name}'")


async def test_a_net_that_stops_in_a_live_worker_is_told_of(
    run: Commands, ol: Outlast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R089: its loop ends, everything else goes on."""
    monkeypatch.setattr(maintenance, "RECORD_INTERVAL_S", 1.0)

    def told() -> list[str]:
        found = json.loads(run("doctor", "--json").out)
        return [one["sentence"] for one in found if one["name"] == "stalled-net"]

    async with ol.worker(poll_max=0.2) as worker:
        await aeventually(lambda: any(duty.name == "expire" for duty in ol.duties()), timeout=30.0)
        assert await asyncio.to_thread(told) == []
        [loop] = [loop for loop in worker.leases.loops if loop.name == "expire"]
        worker.leases._call(loop.stop)
        (late,) = await asyncio.to_thread(patiently, told)
        assert late.startswith("The duty 'expire' last ran")
    await ol.aclose()


def test_tables_without_their_guards_are_found(
    run: Commands, ol: Outlast, database: Database
) -> None:
    """`unmigrated`, `invisible`: a constraint was dropped, or an index."""
    ol.migrate()
    assert examined(run) == (0, {})
    if database.is_sqlite:
        database.rows("DROP INDEX outlast_job_lease")
        missing = "job_lease"
    else:
        force(database, "trace = trace")
        missing = "job_owned, job_owner"
    code, found = examined(run)
    assert code == 1
    assert found["unmigrated"]["sentence"] == (
        f"The table of jobs lacks, or does not enforce: {missing}."
    )
