"""Every command finds the primary by a URL with several hosts."""

from __future__ import annotations

import re

import httpx
import pytest

from outlast import Outlast
from outlast.cli import COMMANDS
from tests.cli.conftest import Program, patiently
from tests.cli.test_secrets import said
from tests.support import Database, Processes
from tests.support.several_hosts import FIRST_HOSTS, first_port, with_first_host
from tests.support.tiers import slow_but

RUN_ALONE = {"worker", "source", "serve", "demo", "verify", "bench"}  # with tests of their own
SERVICE_URL = r"http://127\.0\.0\.1:\d+"
NAMES = [name for name in COMMANDS if name not in RUN_ALONE]
EVERY_CASE = [f"{name} {first}" for name in NAMES for first in FIRST_HOSTS]
SAMPLE = [
    "migrate dead", "enqueue dead", "jobs dead", "doctor dead",
    "migrate read-only", "enqueue read-only", "pause read-only",
]  # fmt: skip


@pytest.mark.parametrize("case", slow_but(SAMPLE, EVERY_CASE))
@pytest.mark.kinds("postgres")
def test_a_command_finds_the_primary_behind_the_first_host(
    case: str,
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    """It ends as it does with the address of the primary alone."""
    name, first = case.split()
    monkeypatch.setenv("OUTLAST_URL", "")
    monkeypatch.setenv("OUTLAST_SCHEMA", database.schema)
    code, _ = said(name, database.url)
    found, text = said(name, with_first_host(database, first_port(first, request)))
    assert "cannot be reached" not in text and "read-only" not in text
    assert found == code, text


@pytest.mark.parametrize("first", slow_but(["read-only"], FIRST_HOSTS))
@pytest.mark.kinds("postgres")
def test_a_worker_and_a_service_find_it(
    first: str, program: Program, database: Database, request: pytest.FixtureRequest
) -> None:
    """With their URL in the environment; a worker of two processes."""
    url = with_first_host(database, first_port(first, request))
    program.environment["OUTLAST_URL"] = url
    worker = program.worker("--processes", "2")
    served = program.processes.python(
        "outlast", "serve", "--port", "0", env=program.environment, cwd=program.folder
    )
    patiently(lambda: re.search(SERVICE_URL, served.output()), message=served.output)
    service = re.findall(SERVICE_URL, served.output())[0]
    with Outlast(database.url, schema=database.schema) as ol:
        add = ol.task(name="add")(lambda a, b=1: a + b)
        job = add.enqueue(a=1)
        assert ol.result(job.id, timeout=60) == 2, worker.output()
    answer = httpx.get(f"{service}/api/v1/jobs", timeout=30, trust_env=False)
    assert [one["id"] for one in answer.json()["jobs"]] == [job.id]
    for process in (worker, served):
        process.terminate()
        assert process.wait(30) == 0, process.output()


@pytest.mark.slow
@pytest.mark.parametrize("first", FIRST_HOSTS)
@pytest.mark.parametrize(
    "words",
    [
        ["bench", "--cell", "enqueue", "--jobs", "100", "--rounds", "1"],
        ["verify", "crash", "--points", "3", "--path", "enqueue"],
        ["verify", "ackloss", "--points", "3"],
        ["verify", "recovery", "--times", "1"],
        ["demo", "--jobs", "200", "--workers", "2"],
    ],
    ids=" ".join,
)
@pytest.mark.kinds("postgres")
def test_measures_and_campaigns_find_it(
    words: list[str],
    first: str,
    database: Database,
    processes: Processes,
    request: pytest.FixtureRequest,
) -> None:
    """Those with faults in the network put their proxy before the primary."""
    url = with_first_host(database, first_port(first, request))
    env = {"OUTLAST_SCHEMA": database.schema}
    running = processes.python("outlast", *words, "--url", url, env=env)
    running.succeed(120.0)
