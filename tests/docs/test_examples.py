"""The examples do what they say, kills included."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from outlast import FlowState, Outlast
from outlast.webhooks.webhook import new_secret
from tests.docs.pages import ROOT
from tests.support import Process, Processes, eventually
from tests.support.ports import free_port

EXAMPLES = ROOT / "examples"
QUICK = {
    "OUTLAST_LEASE": "1.5",
    "OUTLAST_RENEW_EVERY": "0.4",
    "OUTLAST_RECLAIM_EVERY": "0.2",
    "OUTLAST_POLL_MAX": "0.2",
}


class Example:
    """One of the examples that is told what to do, in a folder of its own."""

    name: str

    def __init__(self, processes: Processes) -> None:
        self.processes = processes

    def __call__(self, *words: object) -> Process:
        return self.processes.python(EXAMPLES / f"{self.name}.py", *words, env=QUICK)

    def flows(self) -> list[FlowState]:
        with Outlast(f"sqlite:///{self.processes.folder / self.name}.db") as ol:
            return ol.flows()

    def work_off(self) -> Process:
        """A worker that ends when all flows have."""
        worker = self("work")
        ended = lambda: all(flow.final for flow in self.flows())  # noqa: E731
        eventually(ended, timeout=60, interval=0.1, message=worker.output)
        worker.terminate()
        worker.succeed(timeout=30)
        return worker


class Signup(Example):
    name = "signup"

    def show(self) -> dict[str, Any]:
        shown = ast.literal_eval(self("show").succeed())
        assert isinstance(shown, dict)
        return shown


def test_a_signup_that_is_killed_before_its_commit_leaves_neither_user_nor_job(
    processes: Processes,
) -> None:
    """R002"""
    signup = Signup(processes)
    adding = signup("add", "ada@example.org", "--wait", "60")
    eventually(lambda: "written, not committed" in adding.output(), message=adding.output)
    adding.kill()
    assert signup.show() == {"users": [], "mails": {}}


def test_a_welcome_is_sent_although_its_worker_was_killed(processes: Processes) -> None:
    """R001, R012, R027: enqueued by one process, begun by a second, finished by a third."""
    signup = Signup(processes)
    signup("add", "ada@example.org").succeed()
    assert signup.show() == {"users": ["ada@example.org"], "mails": {"ada@example.org": "ready"}}
    first = signup("work")
    eventually(lambda: "connecting: ada" in first.output(), message=first.output)
    first.kill()
    assert "sent: ada" not in first.output()
    second = signup("work")
    eventually(lambda: "sent: ada" in second.output(), timeout=20, message=second.output)
    eventually(lambda: signup.show()["mails"] == {"ada@example.org": "succeeded"})
    assert message_id(first) == message_id(second)
    second.terminate()
    second.succeed()


def message_id(worker: Process) -> str:
    found = re.search(r"message id (\S+),", worker.output())
    assert found, worker.output()
    return found[1]


def test_thumbnails_are_made_retried_and_given_up(processes: Processes, tmp_path: Path) -> None:
    """R046, R048: one is there, one comes late, one is no picture, one never comes."""
    write_picture(tmp_path / "cat.ppm", 4, 2)
    (tmp_path / "note.ppm").write_bytes(b"P5 not a picture but a note\n")
    pictures = ["cat.ppm", "note.ppm", "late.ppm", "never.ppm"]
    shrinking = processes.python(EXAMPLES / "thumbnails.py", *pictures)
    eventually(lambda: "cat.ppm" in shrinking.output(), timeout=20, message=shrinking.output)
    write_picture(tmp_path / "late.ppm", 6, 6)
    said = shrinking.succeed(timeout=30)
    assert "cat.ppm: cat.small.ppm\n" in said
    assert "note.ppm: outlast.model.errors.Permanent: note.ppm is no PPM picture\n" in said
    assert "late.ppm: late.small.ppm\n" in said
    assert "never.ppm: FileNotFoundError:" in said
    assert (tmp_path / "cat.small.ppm").read_bytes() == b"P6 2 1 255\n" + bytes(range(3)) + bytes(
        range(6, 9)
    )
    assert (tmp_path / "late.small.ppm").read_bytes().startswith(b"P6 3 3 255\n")


def write_picture(path: Path, width: int, height: int) -> None:
    aside = path.with_suffix(".aside")
    aside.write_bytes(b"P6 %d %d 255\n" % (width, height) + bytes(range(width * height * 3)))
    aside.rename(path)


@pytest.mark.slow
def test_a_report_is_made_and_followed_although_the_web_app_was_killed(
    processes: Processes,
) -> None:
    """R003, R027, R105: its reader goes on after the last event that it received, and is not what
    the server waits for when it stops."""
    port = free_port()
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", verify=False) as web:
        first = serve(processes, "fastapi_app:app", port)
        asked = {"month": "2026-11", "days": 100}
        id = web.post("/reports", params=asked).json()["job"]
        assert web.post("/reports", params=asked).json()["job"] == id
        assert web.get("/reports/unknown").status_code == 404
        assert web.get("/reports/unknown/events").status_code == 404
        with suppress(httpx.TransportError):
            for seen in sse_ids(web, id, "0"):
                if len(seen) == 5:
                    first.kill()
        second = serve(processes, "fastapi_app:app", port)
        *_, rest = sse_ids(web, id, seen[-1])
        assert rest[-1].endswith("-end") and not set(seen) & set(rest)
        result = web.get(f"/reports/{id}").json()["result"]
        assert result == {"month": "2026-11", "days": 100, "attempt": 2}

        long = web.post("/reports", params={**asked, "days": 10_000}).json()["job"]
        for _ in sse_ids(web, long, "0"):
            second.terminate()  # the stream ends: else the server would wait for it
        second.wait(timeout=30)


def sse_ids(web: httpx.Client, job: str, last: str) -> Iterator[list[str]]:
    """The ids of a stream, received so far."""
    ids: list[str] = []
    headers = {"last-event-id": last}
    with web.stream("GET", f"/reports/{job}/events", headers=headers, timeout=30) as answer:
        for line in answer.iter_lines():
            if line.startswith("id: "):
                ids.append(line.removeprefix("id: "))
                yield ids


@pytest.mark.parametrize(
    ("app", "path", "good", "bad"),
    [
        ("sqlmodel_orders:app", "/orders", {"item": "lamp"}, {"item": "nothing"}),
        pytest.param(
            *("litestar_app:app", "/imports", {"rows": 5}, {"rows": 2000}), marks=pytest.mark.slow
        ),
    ],
)
def test_a_request_that_fails_leaves_no_job(
    processes: Processes, tmp_path: Path, app: str, path: str, good: Any, bad: Any
) -> None:
    """R002: with SQLModel in FastAPI, and SQLAlchemy in Litestar."""
    port, env = free_port(), {**QUICK, "OUTLAST_URL": None}
    server = serve(processes, app, port, env)
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", verify=False) as web:
        assert web.post(path, params=good).status_code == 202
        assert web.post(path, params=bad).status_code in (422, 500)
    with Outlast(f"sqlite:///{tmp_path}{path}.db") as ol:
        eventually(lambda: ol.counts()["succeeded"] == 1, timeout=20, message=server.output)
        assert sum(ol.counts().values()) == 1
    server.terminate()
    server.wait()


def serve(processes: Processes, app: str, port: int, env: Any = QUICK) -> Process:
    server = processes.python("uvicorn", "--app-dir", EXAMPLES, app, "--port", port, env=env)

    def answers() -> bool:
        assert not server.ended, server.output()
        try:
            return httpx.get(f"http://127.0.0.1:{port}/", verify=False).status_code == 404
        except httpx.TransportError:
            return False

    eventually(answers, timeout=30, message=server.output)
    return server


class Documents(Example):
    name = "documents"


@pytest.mark.slow
def test_an_extract_can_be_read_although_its_refinement_failed_and_workers_were_killed(
    processes: Processes, tmp_path: Path
) -> None:
    """R027, R105: killed in the first stage and in the second; none that was done is done again."""
    (tmp_path / "good.txt").write_text("so it is so")
    (tmp_path / "bad.txt").write_text("unclear")
    documents = Documents(processes)
    assert documents("add", "good.txt", "bad.txt").succeed() == "4 jobs\n"
    first = documents("work")
    eventually(lambda: "extracting good.txt" in first.output(), message=first.output)
    first.kill()
    second = documents("work")
    eventually(lambda: second.output().count("refining") == 2, timeout=30, message=second.output)
    second.kill()
    third = documents.work_off()
    assert "extracting good.txt" in second.output()
    assert "extracting good.txt" not in third.output()
    assert documents("show").succeed().splitlines() == [
        "good.txt: succeeded, words ['so', 'it', 'is', 'so'], counted {'is': 1, 'it': 1, 'so': 2}",
        "bad.txt: partial, words ['unclear'], counted None",
    ]


@pytest.mark.slow
def test_a_receiver_that_is_away_learns_of_every_order_although_the_worker_was_killed(
    processes: Processes, tmp_path: Path
) -> None:
    """R126, R127: orders are shipped while it is away; whoever is killed, each is noted once."""
    env = {**QUICK, "STORE_SECRET": new_secret(), "PORT": str(free_port())}

    def webhook(*words: str) -> Process:
        return processes.python(EXAMPLES / "webhook.py", *words, env=env)

    def noted() -> int:
        return len(log.read_text().splitlines()) if log.exists() else 0

    log = tmp_path / "noted.log"
    webhook("ship", "20").succeed(timeout=20)
    first = webhook("work")
    with Outlast(f"sqlite:///{tmp_path / 'webhook.db'}") as ol:
        eventually(lambda: ol.counts()["succeeded"] == 20, timeout=30, message=first.output)
        assert noted() == 0
        first.kill()
        receiver, second = webhook("receive"), webhook("work")
        eventually(lambda: noted() > 5, timeout=30, message=second.output)
        receiver.kill()
        webhook("receive")
        eventually(lambda: ol.counts()["succeeded"] == 40, timeout=30, message=second.output)
    done = {"ship": {"succeeded": 20}, "store": {"succeeded": 20}, "noted": 20}
    assert ast.literal_eval(webhook("show").succeed(timeout=20)) == done
    second.terminate()
    second.succeed(timeout=20)


def test_examples_are_short() -> None:
    for example in EXAMPLES.glob("*.py"):
        assert len(example.read_text().splitlines()) <= 80, example.name
