"""Fixtures for every test. Servers start when the first test asks, once for each test process.

`async def` tests run in `asyncio.run`, without a plugin; fixtures are always sync.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import os
import shutil
import signal
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.register_assert_rewrite("tests.support")

from outlast import Outlast  # noqa: E402
from outlast.store import open_store  # noqa: E402
from tests.support import Database, PgBouncer, Postgres, Processes, Proxy  # noqa: E402
from tests.support.databases import (  # noqa: E402
    KINDS,
    lent_database,
    postgres_database,
    sqlite_database,
)
from tests.support.requirements import everything_is_required  # noqa: E402
from tests.support.schemas import Schemas  # noqa: E402

# A shell that starts the tests in the background has them ignore Ctrl-C, and every process they
# start: then one that is to leave on Ctrl-C never would.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Every process with a task looks through all packages for plugins of pydantic; there are none.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")

# --- what a test runs on

# Where tests are about jobs, not about how the tables come to be: theirs were there before.
LENDING = [
    Path(__file__).parent / folder
    for folder in "blobs bridges cli metrics remote service store testing webhooks worker".split()
]

# Where a file may take ten seconds and more: it starts processes, or repeats races many times.
LONG = [
    Path(__file__).parent / path
    for path in (
        "browser", "crash", "databases", "docs", "faults", "metrics", "remote", "seeds",
        "test_collection.py", "verify",
        "bench/test_cells.py", "bridges/test_kills.py", "cli/test_demo.py",
        "service/test_events.py", "service/test_event_servers.py", "service/test_schema.py",
        "store/test_claim_at_once.py",
        "store/test_legal_transitions.py", "store/test_model_machine.py", "store/test_nets.py",
        "store/test_plans.py", "store/test_races.py", "worker/test_completion.py",
        "worker/test_leases.py",
    )
]  # fmt: skip


COLOUR_PARAMETERS = ("run", "verb", "colour")  # blocking or sync, asyncio or async


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Postgres]:
    """The PostgreSQL server that all tests of this process share. Leave it running."""
    yield from _started(Postgres())


@pytest.fixture(scope="session")
def read_only_postgres() -> Iterator[Postgres]:
    """A server without tables that refuses to write, as a standby does."""
    yield from _started(Postgres(default_transaction_read_only="on"))


@pytest.fixture(scope="session")
def pgbouncer(postgres_server: Postgres) -> Iterator[PgBouncer]:
    """A pgbouncer in transaction mode in front of the shared server."""
    yield from _started(PgBouncer(postgres_server))


@pytest.fixture(scope="session")
def schemas(postgres_server: Postgres) -> Iterator[Schemas]:
    """Schemas of the shared server that are lent to one test after the other."""
    lending = Schemas(postgres_server)
    yield lending
    lending.close()


@pytest.fixture(scope="session")
def sqlite_tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite file with our tables, to be copied: that takes a tenth of the time to make them."""
    made = sqlite_database(tmp_path_factory.mktemp("tables"))
    store = open_store(made.url)
    store.migrate()
    store.close()
    return made.path


@pytest.fixture
def own_postgres() -> Iterator[Postgres]:
    """A server of this test alone, which it may stop, kill, restart and fill up."""
    yield from _started(Postgres())


@pytest.fixture
def postgres_url(postgres_server: Postgres) -> Iterator[Database]:
    """PostgreSQL only: a schema name of this test's own, dropped afterwards."""
    with postgres_database(postgres_server) as database:
        yield database


@pytest.fixture
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """One test on each kind: sqlite and postgres, or those of its mark `kinds`."""
    if request.param == "sqlite":
        made = sqlite_database(tmp_path)
        if _may_find_tables(request):
            shutil.copyfile(request.getfixturevalue("sqlite_tables"), made.path)
        yield made
        return
    server = request.getfixturevalue("postgres_server")
    pooler = request.getfixturevalue("pgbouncer") if request.param == "pgbouncer" else None
    # One that starts processes could leave them to nobody after it.
    if _may_find_tables(request) and "processes" not in request.fixturenames:
        with lent_database(request.getfixturevalue("schemas"), pooler) as lent:
            yield lent
    else:
        with postgres_database(server, pooler) as fresh:
            yield fresh


@pytest.fixture
def ol(database: Database) -> Iterator[Outlast]:
    """A job system with tables and no jobs."""
    with Outlast(database.url, schema=database.schema) as opened:
        opened.migrate()
        yield opened


def _may_find_tables(request: pytest.FixtureRequest) -> bool:
    """Whether a test may find tables that are there already."""
    if request.node.get_closest_marker("fresh"):
        return False
    return any(request.path.is_relative_to(folder) for folder in LENDING)


# --- what a test starts, and what goes wrong


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    """Starts real processes; the end of the test is their end. What they said is reported."""
    started = Processes(tmp_path)
    try:
        yield started
    finally:
        started.end_all()
        print(started.report())


@pytest.fixture
def proxy(postgres_server: Postgres) -> Iterator[Proxy]:
    """A TCP proxy in front of the shared server: `proxy.url(database.url)`, `proxy.cut()`, …"""
    with Proxy((postgres_server.host, postgres_server.port)) as running:
        yield running


def _started(server: Any) -> Iterator[Any]:
    try:
        server.start()
        yield server
    finally:
        server.destroy()


# --- how tests are collected and run


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--through-pgbouncer",
        action="store_true",
        help="run every test that has a database also through pgbouncer",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "database" in metafunc.fixturenames and not _parametrized_by_hand(metafunc):
        kinds = [pytest.param(kind, marks=_marks(metafunc, kind)) for kind in _kinds(metafunc)]
        metafunc.parametrize("database", kinds, indirect=True)


def _kinds(metafunc: pytest.Metafunc) -> tuple[str, ...]:
    if marker := metafunc.definition.get_closest_marker("kinds"):
        assert set(marker.args) <= set(KINDS), f"kinds{marker.args}: choose from {KINDS}"
        return marker.args
    return KINDS if metafunc.config.getoption("--through-pgbouncer") else ("sqlite", "postgres")


def _marks(metafunc: pytest.Metafunc, kind: str) -> list[pytest.MarkDecorator]:
    return [
        *([] if kind == "sqlite" else [getattr(pytest.mark, kind)]),
        *([pytest.mark.slow] if kind in _slow_kinds(metafunc) else []),
    ]


def _slow_kinds(metafunc: pytest.Metafunc) -> set[str]:
    """Those of its mark `slow_on`. Without one, a test that starts processes is slow on one of the
    two databases: half of these tests on each, so that the default run has the deaths of both.

    Through pgbouncer a test is slow, if it runs on PostgreSQL without it, too.
    """
    kinds, name = _kinds(metafunc), metafunc.definition.originalname
    slow: set[str] = set()
    if marker := metafunc.definition.get_closest_marker("slow_on"):
        slow.update(marker.args)
    elif "processes" in metafunc.fixturenames and {"sqlite", "postgres"} <= set(kinds):
        slow.add("sqlite" if zlib.crc32(name.encode()) % 2 else "postgres")
    if "postgres" in kinds and not metafunc.config.getoption("--through-pgbouncer"):
        slow.add("pgbouncer")
    return slow


def pytest_itemcollected(item: pytest.Item) -> None:
    """An operation is the same whoever carries it out. So the default run has each kind of database
    and each colour once, and `make slow` the other pairs."""
    spec = getattr(item, "callspec", None)
    given = spec.params if spec else {}
    colours = [given[name] for name in COLOUR_PARAMETERS if name in given]
    if "database" in given and colours:
        blocking = colours[0] in ("blocking", "sync")
        if blocking != (given["database"] == "sqlite"):
            item.add_marker(pytest.mark.slow)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take long by turns with the others: tests run in several processes, each of which
    begins with a part of this order."""
    files = dict.fromkeys(item.path for item in items)
    long, short = [], []
    for file in files:
        (long if any(file.is_relative_to(one) for one in LONG) else short).append(file)
    by_turns = itertools.chain(*itertools.zip_longest(long, short))
    places = {file: place for place, file in enumerate(by_turns) if file}
    items.sort(key=lambda item: places[item.path])


def _parametrized_by_hand(metafunc: pytest.Metafunc) -> bool:
    marks = metafunc.definition.iter_markers("parametrize")
    return any("database" in str(mark.args[0]).replace(",", " ").split() for mark in marks)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


# --- where everything is required, a skip is a failure, however the test came to be skipped


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Iterator[None]:
    report = yield
    return _refuse_skip(report)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Iterator[None]:
    report = yield
    return _refuse_skip(report)


def _refuse_skip(report: Any) -> Any:
    if report.skipped and everything_is_required() and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"{reason} (OUTLAST_REQUIRE_ALL=1: skipped is failed)"
    return report
