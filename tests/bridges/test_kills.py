"""SIGKILL at every step between a broker and the database: nothing is lost, ids are stable."""

from __future__ import annotations

import os

import pytest

from tests.bridges.kill_checks import check_kills, check_sink, check_source
from tests.bridges.killing import SINK_STEPS, SOURCE_STEPS, Bridged
from tests.bridges.webhook_killing import Hooked
from tests.support import Database, Processes
from tests.support.tiers import slow_but

KILLS = int(os.environ.get("OUTLAST_KILLS", "100"))  # of each cell of the campaign

redis_only = pytest.mark.parametrize("broker", ["redis"], indirect=True)


@pytest.mark.slow_on("postgres")
@redis_only
@pytest.mark.parametrize("step", slow_but(["after commit", "before acknowledge"], SOURCE_STEPS))
def test_a_message_is_one_job_wherever_its_receiver_is_killed(
    bridged: Bridged, processes: Processes, step: str
) -> None:
    """R026, R123, R130: after receive, after the commit, after the acknowledgement."""
    check_source(bridged, processes, [step] * 3)


@pytest.mark.slow_on("sqlite")
@redis_only
@pytest.mark.parametrize("step", slow_but(["after send"], SINK_STEPS))
def test_every_message_is_sent_in_order_wherever_its_sender_is_killed(
    bridged: Bridged, processes: Processes, step: str
) -> None:
    """R123: at least once, under the id of its job, in order per key."""
    check_sink(bridged, processes, [step] * 3)


@pytest.mark.slow
@pytest.mark.kinds("sqlite")
@pytest.mark.parametrize("broker", ["rabbit", "sqs"], indirect=True)
def test_nothing_is_lost_wherever_a_process_is_killed(
    bridged: Bridged, processes: Processes
) -> None:
    """R026, R123, R130: once at each step; the campaign does it a hundred times, on both stores."""
    check_kills(bridged, processes, [*SOURCE_STEPS, *SINK_STEPS])


@pytest.mark.slow
@pytest.mark.kinds("postgres")
@pytest.mark.parametrize("broker", ["nats", "kafka"], indirect=True)
def test_nothing_is_lost_on_postgres_either(bridged: Bridged, processes: Processes) -> None:
    """R026, R123, R130: Kafka waits for seconds where the group misses a member, so a step less."""
    check_kills(bridged, processes, [*SOURCE_STEPS[:2], *SINK_STEPS])


SOURCES = ["redis", "nats", "rabbit", "sqs", "kafka"]
SINKS = [*SOURCES, "redis_zset", "sns"]
CAMPAIGN = [
    *((broker, step) for broker in SOURCES for step in SOURCE_STEPS),
    *((broker, step) for broker in SINKS for step in SINK_STEPS),
]


@pytest.mark.parametrize(
    "step", slow_but(["after commit", "after send"], [*SOURCE_STEPS, *SINK_STEPS])
)
def test_a_webhook_is_lost_neither_way_wherever_a_process_is_killed(
    hooked: Hooked, processes: Processes, step: str
) -> None:
    """R026, R123, R126, R130: received by the service, and sent by a worker."""
    check = check_source if step in SOURCE_STEPS else check_sink
    check(hooked, processes, [step] * 2)


@pytest.mark.campaign
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("step", [*SOURCE_STEPS, *SINK_STEPS])
def test_a_hundred_kills_at_each_step_of_webhooks(
    hooked: Hooked, database: Database, processes: Processes, step: str
) -> None:
    """R123, R126, R130: each step × 100, on both stores."""
    check = check_source if step in SOURCE_STEPS else check_sink
    tally = check(hooked, processes, [step] * KILLS)
    print(f"TALLY webhooks, {database.kind}, {step}: {tally}")
    assert tally.kills == KILLS


@pytest.mark.campaign
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("broker", "step"), CAMPAIGN, indirect=["broker"])
def test_a_hundred_kills_at_each_step(
    bridged: Bridged, broker: str, database: Database, processes: Processes, step: str
) -> None:
    """R123, R130: each step × 100, of each broker, on both stores."""
    check = check_source if step in SOURCE_STEPS else check_sink
    tally = check(bridged, processes, [step] * KILLS)
    print(f"TALLY {broker}, {database.kind}, {step}: {tally}")
    assert tally.kills == KILLS
