"""Every process can be asked what it does, and no answer costs a job."""

from __future__ import annotations

import socket
import subprocess
import time
from contextlib import closing, suppress
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics

from outlast.cli.worker import MetricsOptions
from outlast.metrics.catalogue import CATALOGUE, Origin
from outlast.metrics.http_server import MAX_CONNECTIONS, MAX_REQUEST_BYTES
from outlast.metrics.targets import SupervisorTarget, WorkerTarget
from outlast.worker.worker_metrics import MAX_NAMES
from tests.metrics.scraping import Asked, Scraped, fleet, measured, start
from tests.support import Database, Processes, eventually
from tests.support.app import PATIENCE, App
from tests.support.requirements import require_program
from tests.worker.working import sql

HOSTILE = ['"', "\\", "\\n", "a\nb", "🚜", 'a{x="1"} 5', "x" * 500, " ", "é\u202e"]


def listed(*who: Origin) -> set[str]:
    return {metric.name for metric in CATALOGUE.values() if metric.origin in who}


def check(text: str) -> None:
    """As Prometheus' own tool sees it."""
    tool = require_program("promtool")
    command = [tool, "check", "metrics"]
    said = subprocess.run(command, input=text.encode(), capture_output=True, check=False)
    assert (said.returncode, said.stdout, said.stderr) == (0, b"", b"")


@pytest.mark.kinds("sqlite")
def test_every_process_of_a_fleet_tells_every_name(processes: Processes, app: App) -> None:
    """R194: the supervisor and each of its workers, by themselves."""
    running = fleet(processes, app, 2)
    [supervisor] = running.of("supervisor")
    workers = running.of("worker")
    assert len(workers) == 2
    assert listed(*SupervisorTarget.origins) == supervisor.scrape().names
    assert supervisor.scrape()("outlast_children", state="running") == 2
    for worker in workers:
        said = worker.moves("outlast_workers", 2, state="working")
        assert listed(*WorkerTarget.origins) == said.names
        check(said.text)
    check(supervisor.scrape().text)


def test_the_children_of_a_supervisor_have_the_next_ports() -> None:
    assert MetricsOptions("::1", 9100).of_child(2) == {
        "OUTLAST_METRICS_PORT": "9102",
        "OUTLAST_METRICS_HOST": "::1",
    }
    assert MetricsOptions("::1", 0).of_child(2)["OUTLAST_METRICS_PORT"] == "0"
    assert MetricsOptions("::1", None).of_child(2) == {}


@pytest.mark.kinds("sqlite")
def test_hostile_names_break_no_scrape(processes: Processes, app: App, database: Database) -> None:
    """R194: whatever a queue or a task is called, there are a bounded number of clean series."""
    others = [
        app.mark.using(queue=f"zz{n:03}").job(n=n) for n in range(MAX_NAMES + len(HOSTILE) + 50)
    ]
    jobs = app.ol.enqueue(*others)
    for job, name in zip(jobs, HOSTILE, strict=False):
        sql(database, "UPDATE {job} SET queue = ? WHERE id = ?", name, job.id)
    task = '"quoted\\" {x="1"} 🚜'
    tractor = app.mark.using(queue="served").enqueue(n=1)
    sql(database, "UPDATE {job} SET task = ?, args = ? WHERE id = ?", task, "{}", tractor.id)
    worker = measured(processes, app, queues="served")

    def all_told() -> Scraped | None:
        said = worker.scrape()
        ran = said("outlast_run_seconds_count", task=task)
        return said if (ran, said("outlast_jobs", state="ready")) == (1, len(jobs)) else None

    said = eventually(all_told, PATIENCE, interval=0.2, message=worker.process.output)
    queues = said.told("outlast_jobs", "queue")
    assert len(queues) == MAX_NAMES + 1
    assert "other" in queues
    assert max(map(len, queues)) <= 200
    assert {name for name in HOSTILE if name.isascii() and len(name) < 200} <= queues
    check(said.text)


@pytest.mark.kinds("sqlite")
class TestServing:
    @pytest.fixture
    def worker(self, processes: Processes, app: App) -> Asked:
        return measured(processes, app)

    def test_it_speaks_as_it_is_asked_to(self, worker: Asked) -> None:
        plain = worker.get("/metrics")
        assert plain.headers["Content-Type"].startswith("text/plain; version=")
        asked = worker.get("/metrics", Accept="application/openmetrics-text; version=1.0.0")
        assert asked.headers["Content-Type"].startswith("application/openmetrics-text")
        assert {f.name for f in openmetrics(asked.body)} >= {"outlast_claims", "outlast_in_hand"}
        odd = worker.get("/metrics", Accept="application/openmetrics-text; version=x,,;=;")
        assert Scraped(odd.body)("outlast_info") == 1
        assert worker.get("/metrics?name=x").status == 200

    def test_it_answers_nothing_else(self, worker: Asked) -> None:
        assert worker.get("/").status == 404
        assert worker.get("/metrics/../livez").status == 404
        for word in (b"POST", b"DELETE", b"BREW"):
            assert b" 405 " in self.ask(worker, word + b" /metrics HTTP/1.1\r\n\r\n")
        assert self.ask(worker, b"HEAD /livez HTTP/1.1\r\n\r\n").endswith(b"\r\n\r\n")
        assert self.ask(worker, b"GET /" + b"x" * MAX_REQUEST_BYTES + b" HTTP/1.1\r\n\r\n") == b""
        assert self.ask(worker, b"\r\n\r\n")[:12] == b"HTTP/1.1 405"

    def test_who_dawdles_keeps_nobody_waiting(self, worker: Asked, app: App) -> None:
        """R191, R226: connections that send no request hold up neither scrapers nor any job; the
        oldest of them are closed for new ones."""
        host, port = self.place(worker)
        idle = [socket.create_connection((host, port)) for _ in range(20 * MAX_CONNECTIONS)]
        for _ in range(3):
            since = time.monotonic()
            assert worker.get("/livez").status == 200
            assert time.monotonic() - since < 1.0
        app.finished(app.mark.enqueue(n=1))
        idle[0].settimeout(5)
        with suppress(ConnectionResetError):
            assert idle[0].recv(1) == b"", "the oldest is closed"
        for one in idle:
            one.close()

    def ask(self, worker: Asked, request: bytes) -> bytes:
        said = b""
        with closing(socket.create_connection(self.place(worker), timeout=10)) as connection:
            connection.sendall(request)
            try:
                while more := connection.recv(65536):
                    said += more
            except ConnectionResetError:
                return b""
        return said

    def place(self, worker: Asked) -> tuple[str, int]:
        host, _, port = worker.address.removeprefix("http://").rpartition(":")
        return host, int(port)


@pytest.mark.kinds("sqlite")
class TestStart:
    def test_nothing_listens_unless_it_is_wanted(self, processes: Processes, app: App) -> None:
        worker = processes.python("outlast", "worker", "tests.metrics.app:ol",
                                  env=app.environment())  # fmt: skip
        eventually(app.ol.workers, PATIENCE, message=worker.output)
        assert "metrics" not in worker.output()

    def test_a_missing_exporter_is_told_of_loudly(
        self, processes: Processes, app: App, tmp_path: Path
    ) -> None:
        """R196: metrics that were asked for are there, or the worker does not start."""
        (tmp_path / "sitecustomize.py").write_text(
            "import sys; sys.modules['prometheus_client'] = None"
        )
        worker = start(processes, app)
        assert worker.wait(PATIENCE) == 1
        assert "pip install 'outlast[serve]'" in worker.output()
        assert "Traceback" not in worker.output()

    def test_a_port_that_is_taken_is_told_of(self, processes: Processes, app: App) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            worker = start(processes, app, "--metrics-port", port)
            assert worker.wait(PATIENCE) == 1
        assert f"port {port}" in worker.output()
        assert "Traceback" not in worker.output()
