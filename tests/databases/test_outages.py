"""One database of several is killed, or does not answer: the others go on."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from outlast import Databases, Outlast, StoreUnavailable, Task
from outlast.service import services
from tests.databases.test_overview import browser_of, words
from tests.service.serving import running
from tests.support import Postgres, Process, Processes, Proxy, eventually

NAMES = ("north", "east", "south", "west")  # of databases, and of a tenant in each
WAITING = 20  # jobs of each that are due while one database is away
WITHIN_S = 8.0  # named by then; the checks are a second apart, and may take two

APP = """
import json, os
from outlast import Databases, Outlast

urls = json.loads(os.environ["URLS"])
ol = Databases({name: Outlast(url) for name, url in urls.items()}, {name: name for name in urls})


@ol.task
def echo(n: int) -> int:
    return n
"""


@pytest.fixture
def servers() -> Iterator[dict[str, Postgres]]:
    with ExitStack() as stack:
        made = {name: Postgres() for name in NAMES}
        for server in made.values():
            stack.callback(server.destroy)
        with ThreadPoolExecutor(len(made)) as pool:
            list(pool.map(Postgres.start, made.values()))
        yield made


@pytest.fixture
def databases(servers: dict[str, Postgres]) -> Iterator[Databases]:
    made = Databases(
        {name: Outlast(server.url()) for name, server in servers.items()},
        {name: name for name in NAMES},
    )
    made.each(Outlast.migrate, timeout=60)
    yield made
    for ol in made.by_name.values():
        ol.close()


@pytest.fixture
def echo(databases: Databases) -> Task[..., int]:
    @databases.task
    def echo(n: int) -> int:
        return n

    return echo


def work(processes: Processes, servers: dict[str, Postgres], name: str) -> Process:
    urls = ", ".join(f'"{one}": "{server.url()}"' for one, server in servers.items())
    (processes.folder / "app.py").write_text(APP)
    return processes.python("outlast", "worker", f"app:ol.{name}", env={"URLS": f"{{{urls}}}"})


def page(browser: httpx.Client) -> str:
    """The overview; it never takes longer than the slowest check."""
    began = time.monotonic()
    text = words(browser)
    assert time.monotonic() - began < WITHIN_S
    return text


@pytest.mark.timeout(240)
def test_tenants_of_other_databases_go_on_while_one_database_is_dead(
    servers: dict[str, Postgres], databases: Databases, echo: Task[..., int], processes: Processes
) -> None:
    """SIGKILL of one server of four. The overview names it within seconds, and its jobs run
    when it is back."""
    workers = {name: work(processes, servers, name) for name in NAMES}

    def round_trip(name: str, n: int) -> int:
        job = echo.using(tenant=name).enqueue(n)
        return databases.of(name).result(job, 30)

    assert [round_trip(name, 1) for name in NAMES] == [1] * 4
    with running(services(databases)) as url, browser_of(url) as browser:
        eventually(lambda: page(browser).count(" reachable ") == len(NAMES))
        for name in NAMES:
            databases.enqueue(*(echo.using(tenant=name, delay=2).job(n) for n in range(WAITING)))
        servers["south"].kill()
        killed = time.monotonic()
        eventually(lambda: "south is unreachable" in page(browser), WITHIN_S)
        assert time.monotonic() - killed < WITHIN_S
        alive = [name for name in NAMES if name != "south"]
        for n in range(10):
            assert [round_trip(name, n) for name in alive] == [n] * 3
            text = page(browser)
            assert text.count(" reachable ") == 3
            assert re.search(r"south unreachable since [\d-]+ [\d:]+ UTC", text)
        assert eventually(
            lambda: (
                [databases.of(name).counts()["succeeded"] for name in alive] == [11 + WAITING] * 3
            )
        )
        with pytest.raises(StoreUnavailable):
            echo.using(tenant="south").enqueue(0)
        found = databases.each(Outlast.counts)
        assert isinstance(found["south"], StoreUnavailable)
        assert all(isinstance(found[name], dict) for name in alive)
        assert all(not worker.ended for worker in workers.values()), "a worker waits for its own"

        servers["south"].start()
        eventually(lambda: page(browser).count(" reachable ") == len(NAMES), WITHIN_S)
        south = databases.of("south")
        eventually(lambda: south.counts()["succeeded"] == 1 + WAITING, message=processes.report)
        assert round_trip("south", 7) == 7
    for worker in workers.values():
        worker.terminate()
        assert worker.wait() == 0


def test_a_database_that_does_not_answer_is_named_and_no_page_hangs(
    own_postgres: Postgres, tmp_path: Path
) -> None:
    """A partition: its connections are open, and nothing comes."""
    with Proxy.before(own_postgres.url()) as proxy:
        ols = {
            "far": Outlast(proxy.url(own_postgres.url())),
            "near": Outlast(f"sqlite:///{tmp_path}/near.db"),
        }
        with running(services(Databases(ols, {}))) as url, browser_of(url) as browser:
            eventually(lambda: page(browser).count(" reachable ") == len(ols))
            proxy.freeze()
            eventually(lambda: "far is unreachable" in page(browser), WITHIN_S)
            assert "near reachable" in page(browser)
            proxy.thaw()
            eventually(lambda: page(browser).count(" reachable ") == len(ols))
        for ol in ols.values():
            ol.close()
