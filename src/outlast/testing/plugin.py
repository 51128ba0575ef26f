"""The pytest plugin: fixtures with a store of its own for each test. Loaded by its entry point.

It imports Outlast only when a fixture is used, so that other test suites pay nothing for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ..client.client import Outlast
    from .stores import FreshStores

APP_HELP = "the app whose tasks are tested, as module:attr: the fixture `outlast` is this app"
URL_HELP = (
    "a PostgreSQL server for the fixture `outlast`: each test has a schema of its own there,"
    " instead of an SQLite file"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("outlast", "background jobs")
    group.addoption("--outlast-app", metavar="MODULE:ATTR", help=APP_HELP)
    group.addoption("--outlast-url", metavar="URL", help=URL_HELP)
    parser.addini("outlast_app", APP_HELP, default="")
    parser.addini("outlast_url", URL_HELP, default="")


def _option(config: pytest.Config, name: str) -> str:
    return str(config.getoption(name) or config.getini(name))


@pytest.fixture(scope="session")
def outlast_app(pytestconfig: pytest.Config) -> Outlast | None:
    """The app of the option or ini value `outlast_app`; override it to return yours."""
    if not (name := _option(pytestconfig, "outlast_app")):
        return None
    from ..cli.apps import load_app

    return load_app(name)


@pytest.fixture(scope="session")
def outlast_stores(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> FreshStores:
    """Empty stores for tests."""
    from .stores import FreshStores

    folder = tmp_path_factory.mktemp("outlast")
    return FreshStores(folder, _option(pytestconfig, "outlast_url"))


@pytest.fixture
def outlast(outlast_app: Outlast | None, outlast_stores: FreshStores) -> Iterator[Outlast]:
    """Your app (or a new one, if none is named) on an empty store with tables."""
    from ..client.client import Outlast

    app = Outlast("sqlite:///unused.db") if outlast_app is None else outlast_app
    with outlast_stores.lend(app):
        yield app
