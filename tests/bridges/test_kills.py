"""SIGKILL at every step between a broker and the database: nothing is lost, ids are stable."""

from __future__ import annotations

import pytest

from tests.bridges.kill_checks import check_kills, check_sink, check_source
from tests.bridges.killing import SINK_STEPS, SOURCE_STEPS, Bridged
from tests.support import Processes

redis_only = pytest.mark.parametrize("broker", ["redis"], indirect=True)


@redis_only
@pytest.mark.parametrize("step", SOURCE_STEPS)
def test_a_message_is_one_job_wherever_its_receiver_is_killed(
    bridged: Bridged, processes: Processes, step: str
) -> None:
    """R026, R123, R130: after receive, after the commit, after the acknowledgement."""
    check_source(bridged, processes, [step] * 3)


@redis_only
@pytest.mark.parametrize("step", SINK_STEPS)
def test_every_message_is_sent_in_order_wherever_its_sender_is_killed(
    bridged: Bridged, processes: Processes, step: str
) -> None:
    """R123: at least once, under the id of its job, in order per key."""
    check_sink(bridged, processes, [step] * 3)


@pytest.mark.kinds("sqlite")
@pytest.mark.parametrize("broker", ["rabbit", "sqs"], indirect=True)
def test_nothing_is_lost_wherever_a_process_is_killed(
    bridged: Bridged, processes: Processes
) -> None:
    """R026, R123, R130: once at each step; the campaign does it a hundred times, on both stores."""
    check_kills(bridged, processes, [*SOURCE_STEPS, *SINK_STEPS])


@pytest.mark.kinds("postgres")
@pytest.mark.parametrize("broker", ["nats", "kafka"], indirect=True)
def test_nothing_is_lost_on_postgres_either(bridged: Bridged, processes: Processes) -> None:
    """R026, R123, R130: Kafka waits for seconds where the group misses a member, so a step less."""
    check_kills(bridged, processes, [*SOURCE_STEPS[:2], *SINK_STEPS])


@pytest.mark.campaign
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("broker", ["redis", "nats", "rabbit", "sqs", "kafka"], indirect=True)
@pytest.mark.parametrize("step", [*SOURCE_STEPS, *SINK_STEPS])
def test_a_hundred_kills_at_each_step(bridged: Bridged, processes: Processes, step: str) -> None:
    """R123, R130: each step × 100, of each broker, on both stores."""
    check = check_source if step in SOURCE_STEPS else check_sink
    check(bridged, processes, [step] * 100)
