"""What a remote worker says of itself, where there is no database to ask."""

from __future__ import annotations

import httpx
import pytest

from tests.remote.fleet import Fleet
from tests.support import eventually
from tests.support.ports import free_port


@pytest.mark.kinds("postgres")
def test_a_remote_worker_serves_its_own_metrics_and_health(fleet: Fleet) -> None:
    """R187: as a local one does, but for what is in the tables."""
    url = f"http://127.0.0.1:{free_port()}"
    port = url.rpartition(":")[2]
    server = fleet.serve()
    worker = fleet.work("python", 4, None, "--metrics-port", port)
    [job] = fleet.enqueue("add", a=1, b=1)
    fleet.ended(job)

    def get(path: str) -> httpx.Response:
        return httpx.get(f"{url}{path}", trust_env=False)

    eventually(
        lambda: 'outlast_finishes_total{outcome="succeeded"} 1.0' in get("/metrics").text,
        message=worker.output,
    )
    told = get("/metrics").text
    assert 'outlast_claims_total{queue="default"} 1.0' in told
    assert "outlast_jobs" not in told
    assert get("/livez").status_code == 200
    assert get("/readyz").status_code == 200
    server.kill()
    eventually(lambda: get("/readyz").text == "the server does not answer\n")
    assert get("/livez").status_code == 200
