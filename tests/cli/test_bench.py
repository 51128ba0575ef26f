"""`outlast bench`: figures of one's own database, and nothing is left behind."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import Postgres, Process, Processes, eventually
from tests.support.processes import alive
from tests.support.tiers import slow_but


@pytest.fixture
def run(processes: Processes, tmp_path: Path) -> Callable[..., Process]:
    here, temporary = tmp_path / "here", tmp_path / "temporary"
    here.mkdir()
    temporary.mkdir()

    def start(*args: object) -> Process:
        return processes.python("outlast", "bench", *args, env={"TMPDIR": str(temporary)}, cwd=here)

    return start


def leftovers(tmp_path: Path) -> list[str]:
    return [path.name for name in ("here", "temporary") for path in (tmp_path / name).iterdir()]


def test_a_table_of_medians(run: Callable[..., Process], tmp_path: Path) -> None:
    output = run("--cell", "enqueue-bulk,latency", "--jobs", 100, "--rounds", 1).succeed(60.0)
    assert "enqueue-bulk, round 1: rate " in output
    assert re.search(r"^latency +p99, ms +[\d.,]+ ", output, re.M)
    assert leftovers(tmp_path) == []


@pytest.mark.slow
def test_json_on_a_schema_that_is_dropped(
    run: Callable[..., Process], tmp_path: Path, postgres_server: Postgres
) -> None:
    url = postgres_server.url()
    bench = run("--cell", "drain,enqueue", "--jobs", 1000, "--rounds", 2, "--json", "--url", url)
    output = bench.succeed(120.0)
    results = json.loads(output[output.index("{") :])
    assert list(results["cells"]) == ["drain", "enqueue"]
    for cell in results["cells"].values():
        assert cell["jobs"] == 1000
        low, high = sorted(sample["rate"] for sample in cell["samples"])
        assert 0 < low <= cell["medians"]["rate"] <= high
    schemas = "SELECT nspname FROM pg_namespace WHERE starts_with(nspname, 'outlast_bench_')"
    assert postgres_server.execute(schemas) == []
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize("number", slow_but([signal.SIGTERM], [signal.SIGINT, signal.SIGTERM]))
def test_who_stops_it_finds_nothing_left_behind(
    run: Callable[..., Process], tmp_path: Path, postgres_server: Postgres, number: int
) -> None:
    """R189: its schema, its files and its processes go with it."""
    bench = run("--cell", "drain", "--jobs", 20_000, "--url", postgres_server.url())
    schemas = "SELECT 1 FROM pg_namespace WHERE starts_with(nspname, 'outlast_bench_')"
    eventually(lambda: postgres_server.execute(schemas), 60.0, message=bench.output)
    children = Path(f"/proc/{bench.pid}/task/{bench.pid}/children")
    pids = eventually(lambda: [int(pid) for pid in children.read_text().split()], 30.0)
    os.kill(bench.pid, number)
    assert bench.wait(30.0) != 0
    eventually(lambda: not any(alive(pid) for pid in pids), 10.0)
    assert postgres_server.execute(schemas) == []
    assert leftovers(tmp_path) == []


def test_a_cell_that_does_not_exist_is_refused(run: Callable[..., Process]) -> None:
    bench = run("--cell", "drane")
    assert bench.wait(30.0) == 2
    assert "'drane' is not one of: all, enqueue," in bench.output()
