"""The pytest plugin, in a pytest of its own: a store per test, quick, on either database."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from outlast import Outlast, StoreError
from outlast.testing import drain
from outlast.testing.stores import FreshStores
from tests.support import Postgres

APP = """
from outlast import Outlast

ol = Outlast("sqlite:///production.db")
ran = []

@ol.task
def work(n: int) -> int:
    ran.append(n)
    return n
"""
TESTS = """
import pytest
import shop
from outlast import Outlast
from outlast.testing import adrain, assert_enqueued, drain, refute_enqueued

@pytest.mark.parametrize("n", range(3))
def test_each_test_has_a_store_of_its_own(outlast: Outlast, n: int) -> None:
    assert outlast is shop.ol
    assert outlast.store.address.dialect == "DIALECT"
    assert outlast.counts()["succeeded"] == 0
    refute_enqueued(shop.work)
    shop.work.enqueue(n)
    assert drain(outlast).succeeded == 1
    assert assert_enqueued(shop.work, n).state == "succeeded"

def test_the_app_is_back_where_it_was_afterwards() -> None:
    assert shop.ol.store.address.url.endswith("production.db")
"""


def run_pytest(folder: Path, *args: str) -> str:
    (folder / "shop.py").write_text(APP)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    command += ["-p", "outlast.testing.plugin", *args]  # and none of the others
    alone = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(
        command, cwd=folder, env=alone, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_fixture_is_the_named_app_on_a_file_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\noutlast_app = shop:ol\npythonpath = .\n")
    (tmp_path / "test_shop.py").write_text(TESTS.replace("DIALECT", "sqlite"))
    assert "4 passed" in run_pytest(tmp_path, "-W", "error")
    assert not (tmp_path / "production.db").exists()


def test_with_a_url_each_test_has_a_schema_of_its_own(
    tmp_path: Path, postgres_server: Postgres
) -> None:
    import psycopg

    (tmp_path / "pytest.ini").write_text("[pytest]\noutlast_app = shop:ol\npythonpath = .\n")
    (tmp_path / "test_shop.py").write_text(TESTS.replace("DIALECT", "postgres"))
    run_pytest(tmp_path, "-W", "error", "--outlast-url", postgres_server.url())
    with psycopg.connect(postgres_server.url()) as connection:
        left = "SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'outlast_test_%'"
        assert connection.execute(left).fetchone() == (0,)


def test_the_fixture_without_an_app_is_a_new_one(outlast: Outlast) -> None:
    @outlast.task
    def work() -> None: ...

    work.enqueue()
    assert drain(outlast).succeeded == 1


def test_a_url_of_sqlite_is_refused(tmp_path: Path) -> None:
    from outlast import InvalidOption

    with pytest.raises(InvalidOption, match="outlast_url"):
        FreshStores(tmp_path, "sqlite:///jobs.db")


def test_an_app_is_back_at_its_place_if_no_store_could_be_made(tmp_path: Path) -> None:
    app = Outlast("sqlite:///production.db")
    (tmp_path / "outlast.db").mkdir()
    with pytest.raises(StoreError), FreshStores(tmp_path).lend(app):
        pass
    assert app.store.address.url == "sqlite:///production.db"


def test_the_plugin_imports_nothing_of_outlast_before_a_fixture_is_used() -> None:
    code = (
        "import sys, outlast.testing.plugin\n"
        "assert not {'pydantic', 'sqlite3', 'outlast.client.client'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.quiet
def test_a_test_with_a_store_and_a_job_takes_hundredths_of_a_second(tmp_path: Path) -> None:
    """By the processor's time: 10 to 20 ms on a machine with nothing else to do, up to 40 beside
    other tests, and ten times as much if each test made its tables."""
    import time

    app = Outlast("sqlite:///unused.db")

    @app.task
    def work() -> None: ...

    def once() -> float:
        began = time.process_time()
        with stores.lend(app):
            work.enqueue()
            assert drain(app).succeeded == 1
        return time.process_time() - began

    stores = FreshStores(tmp_path)
    once()
    assert sorted(once() for _ in range(9))[4] < 0.1
