"""Log lines: readable, never in the way of work, never telling secrets."""

from __future__ import annotations

import json
import logging
import os
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from outlast import Job, Outlast, Retry
from outlast.model.settings import ServiceSettings
from outlast.worker import logs
from tests.support import Database, Processes, eventually
from tests.support.app import PATIENCE, App

FACTS = {"job": "0198", "attempt": 2, "fence": 5, "tenant": "acme", "trace": "00-ab"}


class Pipe:
    """Something to write to, that is read only when the test wants to."""

    def __init__(self) -> None:
        self.reading, self.writing = os.pipe()

    def lines(self, count: int) -> list[str]:
        """Read until there are so many lines."""
        text = b""
        while text.count(b"\n") < count:
            text += os.read(self.reading, 65536)
        return text.decode().splitlines()


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    pipe = Pipe()
    yield pipe
    os.close(pipe.writing)
    os.close(pipe.reading)


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    """The root logger, which `set_up` changes, put back as it was."""
    logger = logging.getLogger()
    level = logger.level
    yield logger
    logs.tear_down()
    logger.setLevel(level)


@pytest.fixture
def app(database: Database, tmp_path: Path) -> Iterator[App]:
    app = App.of(database, tmp_path)
    yield app
    app.close()


@contextmanager
def only_to(pipe: Pipe, formatter: logging.Formatter, room: int = 1000) -> Iterator[Any]:
    """A logger whose lines nobody but our handler sees."""
    handler = logs.QueuedHandler(pipe.writing, room)
    handler.setFormatter(formatter)
    log = logging.Logger("outlast.alone", logging.DEBUG)
    log.addHandler(handler)
    yield log
    handler.close()


class TestFormat:
    def test_text_is_one_short_line(self, pipe: Pipe, root: logging.Logger) -> None:
        logs.set_up("info", "text", pipe.writing)
        logging.getLogger("outlast.worker").warning("job %s: claim lost", "0198", extra=FACTS)
        [line] = pipe.lines(1)
        assert line[2] == line[5] == ":"
        assert line[12:] == " WARNING outlast.worker: job 0198: claim lost"

    def test_json_carries_the_facts_of_the_job(self, pipe: Pipe, root: logging.Logger) -> None:
        logs.set_up("info", "json", pipe.writing)
        logging.getLogger("outlast.worker").warning("claim lost", extra=FACTS)
        logging.getLogger("somebody.else").info("hello")
        first, second = map(json.loads, pipe.lines(2))
        time = first.pop("time")
        assert time.endswith("+00:00")
        assert first == {
            "level": "warning", "logger": "outlast.worker", "message": "claim lost", **FACTS,
        }  # fmt: skip
        assert set(second) == {"time", "level", "logger", "message"}

    def test_an_error_comes_with_its_traceback(self, pipe: Pipe, root: logging.Logger) -> None:
        logs.set_up("info", "json", pipe.writing)
        try:
            raise RuntimeError("no such thing")
        except RuntimeError:
            logging.getLogger("outlast").exception("it failed")
        [line] = map(json.loads, pipe.lines(1))
        assert line["error"].startswith("Traceback")
        assert line["error"].endswith("RuntimeError: no such thing")

    @pytest.mark.parametrize("format", ["text", "json"])
    def test_what_an_error_says_cannot_forge_a_line(
        self, pipe: Pipe, root: logging.Logger, format: str
    ) -> None:
        logs.set_up("info", format, pipe.writing)
        log = logging.getLogger("outlast")
        log.info("bad input: %s", "x\n00:00:00.000 INFO outlast: all is well\r\x1b[2J\0")
        log.info("next")
        first, second = pipe.lines(2)
        assert "all is well" in first
        assert "\x1b" not in first
        assert "next" in second

    @pytest.mark.parametrize("formatter", [logs.TextFormatter, logs.JsonFormatter])
    def test_a_line_that_cannot_be_formatted_says_so(
        self, pipe: Pipe, formatter: type[logging.Formatter]
    ) -> None:
        """R191: whatever is logged, logging does not fail."""
        with only_to(pipe, formatter()) as log:
            log.info("%d jobs", "many")
            log.info("lone surrogate: %s", "\ud800")
            first, second = pipe.lines(2)
        assert "could not be formatted" in first
        assert "lone surrogate: \\ud800" in second.replace("\\\\", "\\")

    def test_an_unknown_format_is_refused(self) -> None:
        with pytest.raises(ValueError, match="text or json"):
            logs.set_up(format="xml")

    def test_the_level_counts_and_setting_up_again_replaces_what_was(
        self, pipe: Pipe, root: logging.Logger
    ) -> None:
        others = list(root.handlers)
        logs.set_up("debug", "json", pipe.writing)
        logs.set_up("warning", "text", pipe.writing)
        assert len(root.handlers) == len(others) + 1
        logging.getLogger("outlast").info("unheard")
        logging.getLogger("outlast").warning("heard")
        [line] = pipe.lines(1)
        assert line.endswith("WARNING outlast: heard")

    def test_what_was_set_up_is_undone(self, pipe: Pipe, root: logging.Logger) -> None:
        """Also the level: what others log in this process is not ours to show."""
        root.setLevel("ERROR")
        others = list(root.handlers)
        logs.set_up("debug", "json", pipe.writing)
        logs.set_up("info", "json", pipe.writing)
        logs.tear_down()
        assert (root.level, root.handlers) == (logging.ERROR, others)


class TestSecrets:
    @pytest.mark.parametrize(
        "text",
        [
            "cannot connect to postgresql://bob:hunter2@db/app",
            "cannot connect to postgresql://bob:hunt@er:hunter2@db/app?x=1",
            "host=db user=bob password=hunter2 dbname=app",
            "host=db password='hunter2 hunter2' dbname=app",
            'payload {"api_token": "hunter2", "n": 1}',
            "payload {'client_secret': 'hunter2'}",
            "Authorization: Bearer hunter2hunter2",
            "sent bearer hunter2hunter2 to them",
            "PGPASSWORD=hunter2 psql",
            "api-key: hunter2",
        ],
    )
    @pytest.mark.parametrize("format", ["text", "json"])
    def test_what_looks_like_a_secret_is_masked(
        self, pipe: Pipe, root: logging.Logger, text: str, format: str
    ) -> None:
        """R198: in messages and in tracebacks."""
        logs.set_up("info", format, pipe.writing)
        try:
            raise RuntimeError(text)
        except RuntimeError as error:
            logging.getLogger("outlast").warning("%s", error, exc_info=True)
        logging.getLogger("outlast").info("the end")
        said = ""
        while "the end" not in said:
            said += os.read(pipe.reading, 65536).decode()
        assert "hunter2" not in said
        assert "***" in said

    def test_settings_are_no_secrets(self) -> None:
        """R198: a name that contains the word, and a number; secrets beside it are masked."""
        names = [field.name for field in fields(ServiceSettings) if "token" in field.name]
        assert names
        line = ", ".join(f"{name}=500" for name in names)
        assert logs.redact(line) == line
        assert logs.redact(f"{line}, token=hunter2") == f"{line}, token=***"

    @pytest.mark.parametrize(
        "text",
        [
            "events_per_token=50",
            "max_tokens: 4096, prompt_tokens=128",
            "{'max_tokens': 4096}",
            "token_count=7, password_length=12",
            "token_expired: True, password=None",
            "SyntaxError: unexpected token: <",
        ],
    )
    def test_what_is_no_secret_is_not_masked(self, text: str) -> None:
        """R198: a name that contains the word is not enough."""
        assert logs.redact(text) == text
        assert logs.redact(f"{text}, token=12345678") == f"{text}, token=***"

    @pytest.mark.parametrize("text", ["token=123456", "password: 123456", "DB_PASSWORD=1", "pwd=7"])
    def test_a_secret_that_is_a_number_is_masked(self, text: str) -> None:
        """R198"""
        assert logs.redact(text).endswith("***")

    def test_masking_a_long_line_takes_no_time(self) -> None:
        """R198, R191: whatever somebody logs."""
        began_at = time.monotonic()
        for text in ("token" * 10**6, "a" * 10**7, "://a:" * 10**6, 'password="' * 10**6):
            assert len(logs.redact(text)) <= logs.MAX_LINE_LENGTH
        assert time.monotonic() - began_at < 5.0

    @pytest.mark.kinds("sqlite")
    @pytest.mark.parametrize("format", ["text", "json"])
    def test_neither_arguments_nor_results_nor_errors_that_quote_them_are_logged(
        self, app: App, database: Database, processes: Processes, format: str
    ) -> None:
        """R198: a payload with a token leaves no trace in a worker's log."""
        script = """
        import os
        from outlast import Context, Permanent, Retry
        from outlast.worker.logs import set_up
        from tests.support.app import from_environment

        set_up("info", os.environ["FORMAT"])
        ol = from_environment().ol

        @ol.task(retry=Retry(max_attempts=2, base=0.0))
        async def leaky(payload: dict[str, str], ctx: Context) -> dict[str, str]:
            ctx.progress(1, 1, payload["it"])
            if payload["how"] == "fails":
                raise ValueError(f"cannot use {payload}")
            if payload["how"] == "permanent":
                raise Permanent(payload["it"])
            if payload["how"] == "unstorable":
                return {payload["it"]: object()}
            return payload

        ol.worker().run()
        """

        @app.ol.task
        async def leaky(payload: dict[str, str]) -> None: ...

        hows = ["succeeds", "fails", "permanent", "unstorable"]
        jobs = [leaky.enqueue({"it": "hunter2", "how": how}) for how in hows]
        with database.connect() as connection:
            table = "outlast_job" if database.is_sqlite else "job"
            bad = '{"payload": "hunter2"}'
            connection.execute(f"UPDATE {table} SET args = '{bad}' WHERE id = '{jobs[0].id}'")
        worker = processes.python(script, env=app.environment() | {"FORMAT": format})
        eventually(lambda: all(app.ol.job(job.id).final for job in jobs), message=worker.output)
        worker.terminate()
        assert worker.wait(PATIENCE) == 0
        assert worker.output().count(jobs[1].id) >= 2, "each failure is logged, without its words"
        assert "hunter2" not in worker.output()
        assert "hunter2" in str(app.ol.job(jobs[1].id).error), "they are kept with the job"


class TestEnds:
    """The log says why an attempt failed."""

    async def failing(self, ol: Outlast, **settings: Any) -> Job:
        @ol.task(retry=Retry(max_attempts=1))
        def charge(customer: str, amount: int) -> None:
            raise LookupError(f"no account of {customer} for {amount}, password=hunter2")

        job = await charge.aenqueue("Ann Example", 12345)
        await ol.worker(**settings).arun(until_idle=True)
        await ol.aclose()
        return job

    @pytest.mark.kinds("sqlite")
    async def test_a_failure_says_why_and_quotes_no_text_of_the_arguments(
        self, ol: Outlast, pipe: Pipe, root: logging.Logger
    ) -> None:
        """R198"""
        logs.set_up("info", "text", pipe.writing)
        job = await self.failing(ol)
        line = next(line for line in pipe.lines(2) if job.id in line)
        assert " ERROR " in line
        why = "LookupError: no account of *** for 12345, password=***"
        assert line.endswith(f"job {job.id} (charge) attempt 1 failed, now dead: {why}")

    @pytest.mark.kinds("sqlite")
    async def test_json_has_the_facts_as_fields(
        self, ol: Outlast, pipe: Pipe, root: logging.Logger
    ) -> None:
        logs.set_up("info", "json", pipe.writing)
        job = await self.failing(ol, log_tracebacks=True)
        line = next(found for found in map(json.loads, pipe.lines(2)) if found.get("job") == job.id)
        facts = {name: line[name] for name in ("task", "queue", "attempt", "outcome", "state")}
        assert facts == {
            "task": "charge", "queue": "default", "attempt": 1, "outcome": "failed", "state": "dead"
        }  # fmt: skip
        assert line["error_type"] == "LookupError"
        assert line["error_message"] == "no account of *** for 12345, password=***"
        assert "raise LookupError" in line["traceback"]
        assert "Ann Example" not in json.dumps(line)

    @pytest.mark.kinds("sqlite")
    async def test_the_message_can_be_left_out_and_the_traceback_added(
        self, ol: Outlast, pipe: Pipe, root: logging.Logger
    ) -> None:
        logs.set_up("info", "text", pipe.writing)
        job = await self.failing(ol, log_error_messages=False, log_tracebacks=True)
        lines = pipe.lines(5)
        assert next(line for line in lines if job.id in line).endswith("now dead: LookupError")
        assert "Traceback (most recent call last):" in lines

    @pytest.mark.kinds("sqlite")
    async def test_a_success_is_a_line_at_debug_level(
        self, ol: Outlast, pipe: Pipe, root: logging.Logger
    ) -> None:
        @ol.task
        def work() -> None: ...

        logs.set_up("debug", "json", pipe.writing)
        job = await work.aenqueue()
        await ol.worker().arun(until_idle=True)
        await ol.aclose()
        logging.getLogger("outlast").info("the end")
        said = ""
        while "the end" not in said:
            said += os.read(pipe.reading, 65536).decode()
        [line] = [line for line in map(json.loads, said.splitlines()) if line.get("job") == job.id]
        assert line["message"].startswith(f"job {job.id} (work) attempt 1 succeeded in 0.")
        assert (line["level"], line["outcome"]) == ("debug", "succeeded")
        assert 0 <= line["duration"] < 60


class TestBlocked:
    def test_lines_that_nobody_reads_are_dropped_and_counted(self, pipe: Pipe) -> None:
        """R191: logging does not wait; when there is room again, the log says what is missing."""
        with only_to(pipe, logs.TextFormatter(), room=100) as log:
            [handler] = log.handlers
            longest = 0.0
            for n in range(1000):
                began_at = time.monotonic()
                log.warning("%d %s", n, "x" * 2000)
                longest = max(longest, time.monotonic() - began_at)
            assert longest < 1.0
            assert 1000 - 100 - 40 <= handler.dropped < 1000 - 100  # a pipe holds some 32 of them
            told: list[str] = []
            while sum(map(int, told)) < handler.dropped:
                told += re.findall(r"(\d+) log lines were dropped", "\n".join(pipe.lines(1)))
        assert sum(map(int, told)) == handler.dropped

    def test_a_process_that_nobody_listens_to_can_still_end(self, processes: Processes) -> None:
        """R191: also at its end, and from several threads."""
        script = """
        import logging, os, sys, threading
        from outlast.worker.logs import set_up
        reading, writing = os.pipe()
        os.dup2(writing, 2)
        set_up("info")
        def shout():
            for _ in range(5000):
                logging.getLogger("x").warning("y" * 1000)
        threads = [threading.Thread(target=shout) for _ in range(4)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        print("done", flush=True)
        """
        process = processes.python(script, env={"PYTHONUNBUFFERED": None})
        assert process.wait(20.0) == 0
        assert process.output() == "done\n"

    def test_work_goes_on_when_nobody_reads_the_log(self, app: App, processes: Processes) -> None:
        """R191: block the pipe behind stderr → throughput unchanged."""
        script = """
        import logging, os, sys, threading
        from outlast.worker.logs import set_up
        from tests.support.app import from_environment

        reading, writing = os.pipe()
        os.dup2(writing, 2)
        if sys.argv[1] == "read":
            def read():
                while os.read(reading, 65536):
                    pass
            threading.Thread(target=read, daemon=True).start()
        set_up("debug")
        ol = from_environment().ol

        @ol.task
        async def chatty(n: int) -> int:
            for line in range(100):
                logging.getLogger("chatty").info("line %d of job %d %s", line, n, "x" * 500)
            return n

        ol.worker().run()
        """

        @app.ol.task
        async def chatty(n: int) -> None: ...

        def seconds(mode: str) -> float:
            worker = processes.python(script, mode, env=app.environment())
            app.finished(chatty.enqueue(0))
            began_at = time.monotonic()
            jobs = app.ol.enqueue(*[chatty.job(n) for n in range(150)])
            eventually(lambda: app.ol.counts()["succeeded"] % 151 == 0, 60.0)
            took = time.monotonic() - began_at
            assert {app.ol.job(job.id).state for job in jobs[::50]} == {"succeeded"}
            worker.terminate()
            assert worker.wait(PATIENCE) == 0
            return took

        free, blocked = seconds("read"), seconds("blocked")
        assert blocked < 2 * free + 2.0, f"{blocked:.2f} s blocked, {free:.2f} s free"

    def test_a_forked_child_has_a_log_of_its_own(self, processes: Processes) -> None:
        """R193: the thread that writes stays behind with the parent."""
        script = """
        import logging, os, warnings
        from outlast.worker.logs import set_up
        warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons: "fork() with threads"
        set_up("info")
        logging.getLogger("x").info("from the parent")
        if os.fork() == 0:
            logging.getLogger("x").info("from the child")
        else:
            assert os.wait()[1] == 0
            logging.getLogger("x").info("from the parent again")
        """
        lines = processes.python(script).succeed().splitlines()
        assert sorted(line.partition(": ")[2] for line in lines) == [
            "from the child", "from the parent", "from the parent again",
        ]  # fmt: skip

    def test_many_threads_lose_no_line_that_has_room(
        self, pipe: Pipe, root: logging.Logger
    ) -> None:
        logs.set_up("info", "text", pipe.writing)

        def shout(number: int) -> None:
            for n in range(100):
                logging.getLogger("x").info("%d-%d", number, n)

        threads = [threading.Thread(target=shout, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        lines = pipe.lines(800)
        for thread in threads:
            thread.join()
        assert len({line.rpartition(" ")[2] for line in lines}) == 800


def test_lines_that_nobody_reads_are_counted_for_the_metrics(
    pipe: Pipe, root: logging.Logger
) -> None:
    """R191, R194"""
    logs.set_up("info", "text", pipe.writing)
    before = logs.dropped()
    [handler] = [one for one in root.handlers if isinstance(one, logs.QueuedHandler)]
    handler._capacity = 1
    log = logging.getLogger("outlast.alone")

    def dropped() -> bool:
        log.info("x" * 10_000)
        return logs.dropped() > before

    eventually(dropped)
    os.set_blocking(pipe.reading, False)
    while handler._queue.qsize():
        with suppress(BlockingIOError):
            os.read(pipe.reading, 1_000_000)
