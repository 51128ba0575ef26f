"""The harness keeps its own promises: what it breaks is broken, what it starts it ends."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import asyncpg
import psycopg
import pytest

from tests.support import (
    Database,
    PgBouncer,
    Postgres,
    Processes,
    Proxy,
    aeventually,
    eventually,
    wrong_clock,
)
from tests.support.databases import sqlite_database
from tests.support.locks import pause_between_writes
from tests.support.processes import alive


class TestServers:
    def test_the_server_answers_every_driver(self, postgres_server: Postgres) -> None:
        import sqlalchemy

        async def by_asyncpg() -> int:
            connection = await asyncpg.connect(postgres_server.url())
            try:
                return await connection.fetchval("SELECT 1")
            finally:
                await connection.close()

        url = postgres_server.url().replace("postgresql:", "postgresql+psycopg:")
        engine = sqlalchemy.create_engine(url)
        with engine.connect() as connection:
            assert connection.scalar(sqlalchemy.text("SELECT 1")) == 1
        engine.dispose()
        assert asyncio.run(by_asyncpg()) == 1
        assert postgres_server.execute("SELECT 1") == [(1,)]

    def test_the_server_has_room_for_many_connections(self, postgres_server: Postgres) -> None:
        [(limit,)] = postgres_server.execute("SHOW max_connections")
        assert int(limit) >= 300

    def test_pgbouncer_is_in_transaction_mode(self, pgbouncer: PgBouncer) -> None:
        settings = {row["key"]: row["value"] for row in pgbouncer.admin("SHOW CONFIG")}
        assert settings["pool_mode"] == "transaction"
        assert settings["ignore_startup_parameters"] == ""

    def test_pgbouncer_shares_few_backends_among_many_clients(self, pgbouncer: PgBouncer) -> None:
        def one_client(_: int) -> set[int]:
            # Without the threshold psycopg prepares by name what it sees often, and the name
            # meets somebody else's on the next backend.
            url = pgbouncer.url()
            with psycopg.connect(url, autocommit=True, prepare_threshold=None) as client:
                query = "SELECT pg_backend_pid(), pg_sleep(0.005)"
                return {client.execute(query).fetchone()[0] for _ in range(20)}

        with ThreadPoolExecutor(30) as pool:
            backends = list(pool.map(one_client, range(30)))
        assert len(set().union(*backends)) <= 10
        assert max(map(len, backends)) > 1, "no client ever changed its backend"

    def test_a_session_leaks_to_the_next_client_but_not_to_the_next_test(
        self, pgbouncer: PgBouncer
    ) -> None:
        def one_client(query: str) -> str:
            with psycopg.connect(pgbouncer.url(), autocommit=True) as client:
                client.execute(query)
                return client.execute("SHOW statement_timeout").fetchone()[0]

        pgbouncer.renew_backends()
        one_client("SET statement_timeout = '7s'")
        assert one_client("SELECT 1") == "7s"
        pgbouncer.renew_backends()
        assert one_client("SELECT 1") == "0"

    def test_clients_of_pgbouncer_that_a_test_left_are_ended(self, pgbouncer: PgBouncer) -> None:
        with closing(psycopg.connect(pgbouncer.url(), autocommit=True)) as left:
            left.execute("SELECT 1")
            pgbouncer.end_sessions()
            with pytest.raises(psycopg.OperationalError):
                left.execute("SELECT 1")
        with psycopg.connect(pgbouncer.url()) as next_one:
            assert next_one.execute("SELECT 1").fetchone() == (1,)

    def test_pgbouncer_refuses_startup_options(self, pgbouncer: PgBouncer) -> None:
        with pytest.raises(psycopg.OperationalError, match="unsupported startup parameter"):
            psycopg.connect(pgbouncer.url(), options="-c statement_timeout=5s")

    def test_an_own_server_keeps_its_commits_when_it_is_killed(
        self, own_postgres: Postgres
    ) -> None:
        own_postgres.execute("CREATE TABLE kept (n int)")
        own_postgres.execute("INSERT INTO kept VALUES (7)")
        url = own_postgres.url()
        own_postgres.kill()
        with pytest.raises(psycopg.OperationalError):
            own_postgres.execute("SELECT 1")
        own_postgres.start()
        assert own_postgres.url() == url
        assert own_postgres.execute("SELECT n FROM kept") == [(7,)]


class TestDatabases:
    def test_a_database_starts_empty(self, database: Database) -> None:
        if database.is_sqlite:
            assert not database.path.exists()
        else:
            query = "SELECT 1 FROM pg_namespace WHERE nspname = %s"
            assert database.rows(query, [database.schema]) == []

    @pytest.mark.kinds("pgbouncer")
    def test_kinds_choose_where_a_test_runs(self, database: Database, pgbouncer: PgBouncer) -> None:
        assert database.kind == "pgbouncer"
        assert f":{pgbouncer.port}/" in database.url
        assert f":{pgbouncer.server.port}/" in database.direct_url
        with psycopg.connect(database.url) as client:
            assert client.execute("SELECT 1").fetchone() == (1,)

    @pytest.mark.parametrize("database", ["postgres"], indirect=True)
    def test_a_schema_is_dropped_although_it_is_locked(
        self, database: Database, postgres_server: Postgres
    ) -> None:
        from tests.support.schemas import drop_schema

        with database.connect() as setup:
            setup.execute(f"CREATE SCHEMA {database.schema}")
            setup.execute("CREATE TABLE held (n int)")
        holder = psycopg.connect(database.url)
        try:
            holder.execute(f"LOCK TABLE {database.schema}.held")
            drop_schema(postgres_server, database.schema)
        finally:
            holder.close()
        query = "SELECT 1 FROM pg_namespace WHERE nspname = %s"
        assert database.rows(query, [database.schema]) == []

    def test_rows_are_read_past_the_product(self, database: Database) -> None:
        assert database.rows("SELECT 1") == [(1,)]


class TestProcesses:
    def test_a_module_a_script_and_source_code_can_run(
        self, processes: Processes, tmp_path: Path
    ) -> None:
        script = tmp_path / "hello.py"
        script.write_text("import sys; print('script', sys.argv[1:])")
        source = """
            import os
            print("source", os.environ["COLOUR"], "HOME" in os.environ)
        """
        assert processes.python(script, 1, "two").succeed() == "script ['1', 'two']\n"
        assert "usage:" in processes.python("json.tool", "--help").succeed()
        run = processes.python(source, env={"COLOUR": "blue", "HOME": None})
        assert run.succeed() == "source blue False\n"

    def test_a_failing_process_shows_what_it_said(self, processes: Processes) -> None:
        with pytest.raises(AssertionError, match="no such luck"):
            processes.python("\nraise SystemExit('no such luck')").succeed()

    def test_a_paused_process_does_nothing_until_it_is_resumed(
        self, processes: Processes, tmp_path: Path
    ) -> None:
        ticks = tmp_path / "ticks"
        source = f"""
            import time
            while True:
                with open({str(ticks)!r}, "a") as file:
                    file.write("x")
                time.sleep(0.001)
        """
        ticker = processes.python(source)
        eventually(lambda: ticks.exists() and ticks.stat().st_size > 10, message=ticker.output)
        ticker.pause()
        before = ticks.stat().st_size
        time.sleep(0.1)
        assert ticks.stat().st_size == before
        ticker.resume()
        eventually(lambda: ticks.stat().st_size > before)
        ticker.kill()
        assert ticker.returncode == -signal.SIGKILL

    def test_a_process_is_stopped_between_its_writes(
        self, processes: Processes, tmp_path: Path
    ) -> None:
        """Stopped anywhere, this one would hold the file's lock every other time."""
        database = sqlite_database(tmp_path)
        database.rows("CREATE TABLE wrote (n)")
        writer = processes.python(f"""
            import sqlite3, time
            connection = sqlite3.connect({str(database.path)!r}, isolation_level=None, timeout=30)
            while True:
                connection.execute("BEGIN IMMEDIATE")
                connection.execute("INSERT INTO wrote VALUES (1)")
                time.sleep(0.01)
                connection.execute("COMMIT")
                time.sleep(0.01)
        """)
        eventually(lambda: database.rows("SELECT 1 FROM wrote"), message=writer.output)
        for _ in range(8):
            pause_between_writes(writer, database)
            with closing(sqlite3.connect(database.path, timeout=0)) as other:
                other.execute("INSERT INTO wrote VALUES (2)")
                other.commit()
            writer.resume()

    def test_the_end_of_a_test_ends_children_of_children(self, tmp_path: Path) -> None:
        note = tmp_path / "pid"
        started = Processes(tmp_path)
        started.python(
            f"""
            import pathlib, subprocess, sys, time
            child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
            pathlib.Path({str(note)!r}).write_text(str(child.pid))
            time.sleep(60)
            """
        )
        grandchild = int(eventually(lambda: note.exists() and note.read_text()))
        assert alive(grandchild)
        started.end_all()
        eventually(lambda: not alive(grandchild))

    def test_a_clock_can_be_wrong(self, processes: Processes) -> None:
        source = "\nimport time; print(time.time(), time.monotonic())"
        run = processes.python(source, env=wrong_clock("+2h"))
        wall, monotonic = map(float, run.succeed().split())
        assert 7100 < wall - time.time() < 7300
        assert abs(monotonic - time.monotonic()) < 60


class TestWaiting:
    def test_the_value_comes_back(self) -> None:
        values = iter([0, None, 3])
        assert eventually(lambda: next(values)) == 3

    def test_a_failure_says_what_was_awaited_and_what_was_seen(self) -> None:
        with pytest.raises(
            AssertionError, match=r"within 0\.05 s.*1 > 2(.|\n)*last: False"
        ) as failure:
            eventually(lambda: 1 > 2, timeout=0.05, message=lambda: "the worker said no")
        assert "the worker said no" in str(failure.value)

    def test_an_assertion_means_not_yet_and_another_error_comes_out(self) -> None:
        def still_wrong() -> bool:
            assert 1 == 2
            return True

        with pytest.raises(AssertionError) as failure:
            eventually(still_wrong, timeout=0.05)
        assert isinstance(failure.value.__cause__, AssertionError)
        with pytest.raises(ZeroDivisionError):
            eventually(lambda: 1 / 0)

    async def test_async_conditions(self) -> None:
        async def ready() -> str:
            return "yes"

        assert await aeventually(ready) == "yes"
        with pytest.raises(AssertionError):
            await aeventually(lambda: False, timeout=0.05)


class TestProxy:
    def test_it_forwards(self, proxy: Proxy, postgres_url: Database) -> None:
        with psycopg.connect(proxy.url(postgres_url.url)) as client:
            payload = "x" * 1_000_000
            assert client.execute("SELECT %s", [payload]).fetchone() == (payload,)
            assert proxy.connections == 1
        eventually(lambda: proxy.connections == 0)

    def test_it_reaches_a_unix_socket(self, postgres_server: Postgres) -> None:
        path = postgres_server.folder / f".s.PGSQL.{postgres_server.port}"
        with (
            Proxy(path) as proxy,
            psycopg.connect(proxy.url(postgres_server.url())) as client,
        ):
            assert client.execute("SELECT inet_client_addr() IS NULL").fetchone() == (True,)

    def test_cut_resets_and_the_next_connection_works(
        self, proxy: Proxy, postgres_url: Database
    ) -> None:
        client = psycopg.connect(proxy.url(postgres_url.url))
        proxy.cut()
        with pytest.raises(psycopg.OperationalError):
            client.execute("SELECT 1")
        client.close()
        psycopg.connect(proxy.url(postgres_url.url)).close()

    def test_a_refusing_proxy_is_a_server_that_is_down(
        self, proxy: Proxy, postgres_url: Database
    ) -> None:
        url = proxy.url(postgres_url.url)
        proxy.refuse()
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(url)
        proxy.accept()
        psycopg.connect(url).close()

    async def test_a_frozen_connection_is_silent_and_goes_on_when_thawed(
        self, proxy: Proxy, postgres_url: Database
    ) -> None:
        client = await asyncpg.connect(proxy.url(postgres_url.url))
        proxy.freeze()
        answer = asyncio.ensure_future(client.fetchval("SELECT 42"))
        done, _ = await asyncio.wait([answer], timeout=0.3)
        assert not done
        proxy.thaw()
        assert await asyncio.wait_for(answer, 5) == 42
        await client.close()

    @pytest.mark.parametrize("abruptly", [False, True])
    def test_behind_a_frozen_line_the_server_believes_in_a_dead_client(
        self, proxy: Proxy, postgres_server: Postgres, processes: Processes, abruptly: bool
    ) -> None:
        """Abruptly: with unread bytes in its buffer, a dying client sends a reset."""
        unread = "client.pgconn.send_query(b'SELECT pg_sleep(0.1), 1'); time.sleep(0.5)"
        victim = processes.python(
            f"""
            import psycopg, time
            url = {proxy.url(postgres_server.url())!r}
            client = psycopg.connect(url, application_name="victim")
            {unread if abruptly else "pass"}
            print("connected")
            time.sleep(60)
            """
        )
        eventually(lambda: "connected" in victim.output(), message=victim.output)
        known = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'victim'"
        proxy.freeze()
        victim.kill()
        time.sleep(0.2)
        assert postgres_server.execute(known) == [(1,)]
        proxy.thaw()
        eventually(lambda: postgres_server.execute(known) == [(0,)])

    def test_what_a_closed_proxy_held_back_never_arrives(
        self, postgres_server: Postgres, postgres_url: Database
    ) -> None:
        with postgres_url.connect() as setup:
            setup.execute(f"CREATE SCHEMA {postgres_url.schema}")
            setup.execute("CREATE TABLE held (n int)")
        with Proxy.before(postgres_server.url()) as proxy:
            client = psycopg.connect(proxy.url(postgres_url.url), autocommit=True)
            proxy.freeze()
            insert = f"INSERT INTO {postgres_url.schema}.held VALUES (1)"
            client.pgconn.send_query(insert.encode())
            time.sleep(0.1)
        client.close()
        assert postgres_url.rows("SELECT * FROM held") == []

    def test_a_delay_makes_a_round_trip_slow(self, proxy: Proxy, postgres_url: Database) -> None:
        with psycopg.connect(proxy.url(postgres_url.url), autocommit=True) as client:
            proxy.delay(0.1)
            started = time.monotonic()
            client.execute("SELECT 1")
            assert 0.2 <= time.monotonic() - started < 2
            proxy.delay(0)

    def test_a_lost_commit_answer_is_a_commit(self, proxy: Proxy, postgres_url: Database) -> None:
        client = table_and_client(proxy, postgres_url)
        trap = proxy.swallow_reply_after(b"COMMIT")
        client.execute("INSERT INTO lost VALUES (1)")
        with pytest.raises(psycopg.OperationalError):
            client.commit()
        assert postgres_url.rows("SELECT n FROM lost") == [(1,)]
        trap.wait()
        client.close()

    def test_a_lost_commit_request_is_no_commit(self, proxy: Proxy, postgres_url: Database) -> None:
        client = table_and_client(proxy, postgres_url)
        trap = proxy.drop_request_when(lambda sent: b"COMMIT" in sent)
        client.execute("INSERT INTO lost VALUES (1)")
        with pytest.raises(psycopg.OperationalError):
            client.commit()
        trap.wait()
        assert postgres_url.rows("SELECT n FROM lost") == []
        client.close()

    def test_a_lost_answer_in_a_pipeline_is_still_a_commit(
        self, proxy: Proxy, postgres_url: Database
    ) -> None:
        client = table_and_client(proxy, postgres_url)
        trap = proxy.swallow_reply_after(b"COMMIT")
        with pytest.raises(psycopg.OperationalError), client.pipeline():
            for n in range(50):
                client.execute("INSERT INTO lost VALUES (%s)", [n])
            client.execute("COMMIT")
        trap.wait()
        assert postgres_url.rows("SELECT count(*) FROM lost") == [(50,)]
        client.close()

    def test_the_rest_of_a_request_arrives_after_the_answer_has_begun(
        self, proxy: Proxy, postgres_url: Database
    ) -> None:
        client = table_and_client(proxy, postgres_url)
        trap = proxy.swallow_reply_after(b"marker")
        raw = client.pgconn
        raw.enter_pipeline_mode()
        raw.send_query_params(b"SELECT 'marker'", [])
        raw.send_flush_request()
        raw.flush()
        time.sleep(0.02)
        raw.send_query_params(b"INSERT INTO lost VALUES (1)", [])
        raw.pipeline_sync()
        raw.flush()
        trap.wait()
        assert postgres_url.rows("SELECT n FROM lost") == [(1,)]
        client.close()

    def test_a_trap_springs_once(self, proxy: Proxy, postgres_url: Database) -> None:
        url = proxy.url(postgres_url.url)
        trap = proxy.drop_request_when(b"tripwire")
        with pytest.raises(psycopg.OperationalError), psycopg.connect(url) as client:
            client.execute("SELECT 'tripwire'")
        trap.wait()
        with psycopg.connect(url) as client:
            assert client.execute("SELECT 'tripwire'").fetchone() == ("tripwire",)


def table_and_client(proxy: Proxy, database: Database) -> psycopg.Connection:
    with database.connect() as setup:
        setup.execute(f"CREATE SCHEMA {database.schema}")
        setup.execute("CREATE TABLE lost (n int)")
    options = f"-c search_path={database.schema}"
    return psycopg.connect(proxy.url(database.url), options=options)
