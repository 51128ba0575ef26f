"""`outlast token` and `outlast serve`."""

from __future__ import annotations

import json
import re

import httpx
import pytest

from tests.cli.conftest import Commands, Program, patiently
from tests.support import Database

NONE = "0198c1f2-7d1e-7c3a-9f65-2b1f0c3d4e5f"


def test_a_token_is_shown_once_and_listed_without_it(run: Commands) -> None:
    answer = run("token", "create", "--name", "shop", "--scope", "read", "--scope", "enqueue")
    secret = answer.out.strip()
    assert re.fullmatch(r"olt_[\w-]{43}", secret) and answer.code == 0
    assert secret not in answer.err and "only once" in answer.err
    made = run(
        "token", "create", "--json", "--scope", "work", "--tenant", "acme", "--queue", "a",
        "--queue", "b", "--expires", "30d",
    ).json  # fmt: skip
    assert made["queues"] == ["a", "b"] and made["tenant"] == "acme" and made["expires_at"]
    listed = run("token", "list", "--json")
    assert [one["name"] for one in listed.json] == ["unnamed", "shop"]
    assert secret not in listed.out and made["token"] not in listed.out
    assert "shop" in run("token", "list").out
    assert run("token", "revoke", made["id"]).out == f"{made['id']} revoked\n"
    assert run("token", "revoke", made["id"], "--json").json[0]["state"] == "revoked"


def test_what_cannot_be_a_token_is_refused(run: Commands) -> None:
    assert "No tokens" in run("token", "list").out
    assert run("token", "create").code == 2
    assert run("token", "create", "--scope", "everything").code == 2
    assert run("token", "create", "--scope", "read", "--tenant", "").code == 1
    assert run("token", "create", "--scope", "read", "--name", "a\nb").code == 1
    assert run("token", "create", "--scope", "read", "--expires", "0").code == 1
    for id in (NONE, "nonsense"):
        answer = run("token", "revoke", id)
        assert answer.code == 1 and "There is no token" in answer.err


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
def test_beyond_this_machine_it_serves_only_with_tokens(run: Commands, host: str) -> None:
    """Loopback only unless a token exists, and a sentence that says what to do."""
    answer = run("serve", "--host", host, "--port", "0")
    assert answer.code == 1
    assert "outlast token create" in answer.err


@pytest.mark.kinds("sqlite")
def test_it_serves_an_app_until_it_is_told_to_stop(
    program: Program, database: Database, run: Commands
) -> None:
    """A real process: its tasks check what is enqueued; SIGTERM ends it."""
    token = run("token", "create", "--scope", "admin").out.strip()
    served = program.processes.python(
        "outlast", "serve", "app:ol", "--host", "0.0.0.0", "--port", "0",
        env=program.environment, cwd=program.folder,
    )  # fmt: skip
    found = patiently(lambda: re.search(r"http://0\.0\.0\.0:(\d+)", served.output()))
    url = f"http://127.0.0.1:{found[1]}"
    headers = {"authorization": f"Bearer {token}"}
    with httpx.Client(base_url=url, headers=headers, timeout=30, trust_env=False) as web:
        made = web.post("/api/v1/jobs", json={"task": "add", "args": {"a": 1}})
        assert made.status_code == 201
        bad = web.post("/api/v1/jobs", json={"task": "add", "args": {"a": "x"}})
        assert bad.status_code == 422
        assert httpx.get(f"{url}/api/v1/jobs", trust_env=False).status_code == 401
        assert "server" not in made.headers
    served.terminate()
    assert served.wait(20) == 0, served.output()
    assert token not in served.output() and "max_body=" in served.output()
    assert json.loads(made.text)["id"] == run("jobs", "--json").json[0]["id"]


@pytest.mark.kinds("sqlite")
def test_without_its_extra_it_says_what_to_install(program: Program) -> None:
    (program.folder / "uvicorn.py").write_text("raise ImportError('there is none')")
    served = program.processes.python(
        "outlast", "serve", env=program.environment, cwd=program.folder
    )
    assert served.wait(20) == 1
    assert "pip install 'outlast[serve]'" in served.output()
    assert "Traceback" not in served.output()


@pytest.mark.kinds("postgres")
def test_the_password_of_the_database_is_told_to_nobody(
    program: Program, database: Database
) -> None:
    """R198: not in what is logged, whether the database answers or not."""
    url = database.url.replace("://postgres@", "://postgres:hunter2@")
    assert "hunter2" in url
    away = re.sub(r":\d+/", ":9/", url)
    for place, status in ((url, 200), (away, 503)):
        served = program.processes.python(
            "outlast", "serve", "--port", "0", "--log-level", "debug",
            env={**program.environment, "OUTLAST_URL": place}, cwd=program.folder,
        )  # fmt: skip
        found = patiently(
            lambda said=served: re.search(r"http://127\.0\.0\.1:(\d+)", said.output())
        )
        answer = httpx.get(f"{found[0]}/api/v1/jobs", timeout=30, trust_env=False)
        assert answer.status_code == status
        served.interrupt()
        assert served.wait(20) == 0
        assert "hunter2" not in served.output() + answer.text
