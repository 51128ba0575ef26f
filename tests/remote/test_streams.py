"""Output that remote workers stream: through the server, in order, whatever dies."""

from __future__ import annotations

from tests.remote.fleet import PATIENCE, Fleet
from tests.support import eventually


def test_output_of_remote_workers_is_in_order_and_marked(fleet: Fleet) -> None:
    """R248: the first worker dies in the middle; what it left on disk is not sent late, because
    readers have gone on to the next attempt."""
    fleet.serve()
    [job] = fleet.enqueue("talk", to=200)
    dying = fleet.work()
    eventually(lambda: dying.ended, PATIENCE, message=dying.output)
    fleet.work()
    chunks = list(fleet.ol.stream(job.id, poll=0.02))
    first, second = (
        "".join(chunk.text for chunk in chunks if chunk.attempt == attempt) for attempt in (1, 2)
    )
    whole = "".join(f"{n} " for n in range(200))
    assert whole.startswith(first) and first != whole
    assert second == whole
    assert chunks[-1].data == {"to": 200}
    assert [chunk.attempt for chunk in chunks if chunk.kind == "attempt"] == [1, 2]
    assert len(chunks) < 100, "consecutive texts are stored together"
    assert list(fleet.ol.stream(job.id)) == chunks


def test_the_output_of_a_remote_worker_s_step_is_stored_before_the_step(fleet: Fleet) -> None:
    """R248, R105: the worker dies right after a step, which does not run again."""
    fleet.serve()
    [job] = fleet.enqueue("talk_in_steps", to=2)
    for _ in range(2):
        assert fleet.work().wait(PATIENCE) == -9
    fleet.work()
    words = "".join(f"{n} " for n in range(10))
    told = ["", "", ""]
    for chunk in fleet.ol.stream(job.id, poll=0.02):
        told[chunk.attempt - 1] += chunk.text
    assert told == [f"0: {words}", f"1: {words}", ""]
