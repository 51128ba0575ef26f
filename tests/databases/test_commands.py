"""Commands on several databases: `outlast worker app:ol.us`, `outlast serve app:ol`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from outlast import Outlast
from tests.databases.test_overview import browser_of, words
from tests.support import Process, Processes, eventually

APP = """
from outlast import Context, Databases, Outlast

ol = Databases(
    {name: Outlast(f"sqlite:///{name}.db") for name in ("eu", "us")},
    {"acme": "eu", "umbrella": "us"},
)


@ol.task
def near(ctx: Context) -> str:
    return ctx.job.tenant


@ol.task(isolated=True)
def lone(ctx: Context) -> str:
    return ctx.job.tenant


@ol.task(isolated=True)
def far(ctx: Context) -> str:
    ctx.enqueue(near.using(tenant=ctx.job.tenant).job())
    return ctx.step("kept", str.upper, ctx.job.tenant)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(APP)
    return tmp_path


def outlast(processes: Processes, folder: Path, *words: str) -> Process:
    return processes.python("outlast", *words, cwd=folder)


def enqueue(processes: Processes, folder: Path, task: str, name: str, tenant: str) -> Process:
    app = f"app:ol.{name}"
    return outlast(processes, folder, "enqueue", task, "--app", app, "--tenant", tenant)


def test_a_worker_is_of_one_database(processes: Processes, folder: Path) -> None:
    enqueue(processes, folder, "near", "eu", "acme").succeed()
    enqueue(processes, folder, "far", "us", "umbrella").succeed()
    outlast(processes, folder, "worker", "app:ol.us", "--until-idle").succeed()
    with Outlast(f"sqlite:///{folder}/us.db") as us, Outlast(f"sqlite:///{folder}/eu.db") as eu:
        results = {job.task: job.result for job in us.jobs(state="succeeded")}
        assert results == {"far": "UMBRELLA", "near": "umbrella"}
        assert [job.state for job in eu.jobs()] == ["ready"]


def test_an_isolated_task_is_run_on_the_database_of_the_command_line(
    processes: Processes, folder: Path
) -> None:
    url = f"sqlite:///{folder}/copy.db"
    enqueue(processes, folder, "far", "eu", "acme").succeed()
    (folder / "eu.db").rename(folder / "copy.db")
    outlast(processes, folder, "worker", "app:ol.eu", "--until-idle", "--url", url).succeed()
    with Outlast(url) as copy:
        assert {job.result for job in copy.jobs(state="succeeded")} == {"ACME", "acme"}


def test_a_command_names_the_databases_when_none_or_a_wrong_one_is_named(
    processes: Processes, folder: Path
) -> None:
    found = "found app:ol.eu, app:ol.us"
    for app, said in {
        "app:ol": f"is several databases: name one, {found}",
        "app:ol.asia": f"has no 'ol.asia': {found}",
        "app": f"does not name one Outlast: {found}",
    }.items():
        worker = outlast(processes, folder, "worker", app)
        assert worker.wait() == 1
        assert said in worker.output() and "Traceback" not in worker.output()


def test_a_job_for_another_database_is_refused(processes: Processes, folder: Path) -> None:
    sent = enqueue(processes, folder, "near", "us", "acme")
    assert sent.wait() == 1
    assert "'acme', which the database eu has, not this one" in sent.output()


def test_the_service_serves_all_databases(processes: Processes, folder: Path) -> None:
    enqueue(processes, folder, "near", "eu", "acme").succeed()
    served = outlast(processes, folder, "serve", "app:ol", "--port", "0")
    url = eventually(lambda: re.search(r"http://127\.0\.0\.1:\d+", served.output()))
    with browser_of(url[0]) as browser:
        text = words(browser)
        assert "eu reachable 1" in text and "us reachable 0" in text
    served.terminate()
    assert served.wait() == 0
    assert re.search(r"serving sqlite:///\S*/eu.db, sqlite:///\S*/us.db, ", served.output())


def test_no_database_is_served_to_other_machines_without_a_token(
    processes: Processes, folder: Path
) -> None:
    name = ("token", "create", "--name", "test", "--scope", "read")
    outlast(processes, folder, "--url", "sqlite:///eu.db", "migrate").succeed()
    outlast(processes, folder, "--url", "sqlite:///eu.db", *name).succeed()
    served = outlast(processes, folder, "serve", "app:ol", "--port", "0", "--host", "0.0.0.0")
    assert served.wait() == 1
    assert re.search(r"no token exists in sqlite:///\S*/us.db", served.output())


def test_a_remote_worker_works_for_one_database(processes: Processes, folder: Path) -> None:
    """A task that is isolated, too: its process has no database."""
    enqueue(processes, folder, "near", "us", "umbrella").succeed()
    enqueue(processes, folder, "lone", "us", "umbrella").succeed()
    made = outlast(
        processes, folder, "--url", "sqlite:///us.db", "token", "create", "--name", "fleet",
        "--scope", "work",
    ).succeed()  # fmt: skip
    (folder / "token").write_text(re.findall(r"olt_\S+", made)[0])
    served = outlast(processes, folder, "serve", "app:ol", "--port", "0")
    url = eventually(lambda: re.search(r"http://127\.0\.0\.1:\d+", served.output()))[0]
    outlast(
        processes, folder, "worker", "app:ol.us", "--server", f"{url}/us", "--token-file", "token"
    )
    with Outlast(f"sqlite:///{folder}/us.db") as us:
        eventually(lambda: us.counts()["succeeded"] == 2, message=processes.report)
        assert {job.result for job in us.jobs()} == {"umbrella"}
