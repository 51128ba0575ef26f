"""The examples do what they say, kills included."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import httpx

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


def test_a_report_is_made_although_the_web_app_was_killed(processes: Processes) -> None:
    """R003, R027"""
    port = free_port()
    first = serve(processes, port)
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", verify=False) as web:
        asked = {"month": "2026-11", "days": 100}
        id = web.post("/reports", params=asked).json()["job"]
        assert web.post("/reports", params=asked).json()["job"] == id
        eventually(lambda: (web.get(f"/reports/{id}").json()["progress"] or {}).get("done", 0) > 2)
        assert web.get("/reports/unknown").status_code == 404
    first.kill()
    second = serve(processes, port)
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", verify=False) as web:
        eventually(lambda: web.get(f"/reports/{id}").json()["state"] == "succeeded", timeout=20)
        result = web.get(f"/reports/{id}").json()["result"]
        assert result == {"month": "2026-11", "days": 100, "attempt": 2}
    second.terminate()
    second.wait()


def serve(processes: Processes, port: int) -> Process:
    server = processes.python(
        "uvicorn", "--app-dir", EXAMPLES, "fastapi_app:app", "--port", port, env=QUICK
    )

    def answers() -> bool:
        assert not server.ended, server.output()
        try:
            return httpx.get(f"http://127.0.0.1:{port}/openapi.json", verify=False).is_success
        except httpx.TransportError:
            return False

    eventually(answers, timeout=30, message=server.output)
    return server


class Relay:
    """examples/relay.py in a folder of its own."""

    def __init__(self, processes: Processes) -> None:
        self.processes = processes

    def __call__(self, *words: str) -> Process:
        return self.processes.python(EXAMPLES / "relay.py", *words, env=QUICK)

    def show(self) -> dict[str, Any]:
        shown = ast.literal_eval(self("show").succeed())
        assert isinstance(shown, dict)
        return shown


def test_a_relay_that_is_killed_in_a_batch_loses_no_message(
    processes: Processes, tmp_path: Path
) -> None:
    """R027, R055: what the first had published may be published again, by the same id."""
    relay, broker = Relay(processes), tmp_path / "broker.log"
    relay("add", "80").succeed()
    first = relay("work")
    eventually(lambda: broker.exists() and len(broker.read_text().splitlines()) > 5, timeout=20)
    first.kill()
    assert "publishing 80" in first.output()
    second = relay("work")
    done = {"messages": {"succeeded": 80}, "published": 80}
    eventually(lambda: done.items() <= relay.show().items(), timeout=20, message=second.output)
    assert 0 < relay.show()["twice"] < 80
    second.terminate()
    second.succeed()


def test_a_broker_that_is_down_costs_no_message_anything(
    processes: Processes, tmp_path: Path
) -> None:
    """R048, R054, R055: they wait until it is back; what it will never take is dead alone."""
    relay, down = Relay(processes), tmp_path / "broker.down"
    down.touch()
    relay("add", "10").succeed()
    relay("add", "1", "--long").succeed()
    worker = relay("work")
    eventually(lambda: "breaker open" in worker.output(), timeout=20, message=worker.output)
    shown = relay.show()
    assert shown["published"] == 0 and sum(shown["messages"].values()) == 11
    assert not {"dead", "succeeded"} & set(shown["messages"])
    down.unlink()
    done = {"messages": {"succeeded": 10, "dead": 1}, "published": 10, "twice": 0}
    eventually(lambda: relay.show() == done, timeout=20, message=worker.output)
    worker.terminate()
    worker.succeed()


class Documents(Example):
    name = "documents"


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


class Fanout(Example):
    name = "fanout"


def test_a_thousand_files_are_added_up_once_each_although_workers_were_killed(
    processes: Processes, tmp_path: Path
) -> None:
    """R091, R094, R109: the sum starts once, when all of them are done."""
    folder = tmp_path / "texts"
    folder.mkdir()
    for n in range(1000):
        (folder / f"{n}.txt").write_text("word " * (n % 7))
    words = sum(n % 7 for n in range(1000))
    fanout = Fanout(processes)
    assert "1001 jobs in flow" in fanout("add", folder).succeed()

    for some in (20, 200):
        worker = fanout("work")
        eventually(
            lambda some=some: fanout.flows()[0].ended >= some,  # type: ignore[misc]
            timeout=60,
            message=worker.output,
        )
        worker.kill()
    assert not fanout.flows()[0].final
    fanout.work_off()
    assert fanout("show").succeed().splitlines() == [
        "succeeded: 1001 of 1001",
        f"{{'files': 1000, 'words': {words}}}",
    ]


class Crawler(Example):
    name = "crawler"


def test_a_crawl_sums_up_every_page_once_although_its_worker_was_killed(
    processes: Processes,
) -> None:
    """R094, R107: pages add pages, and the summary comes after all of them."""
    crawler = Crawler(processes)
    crawler("start").succeed()
    first = crawler("work")
    eventually(lambda: first.output().count("fetched") > 5, timeout=30, message=first.output)
    first.kill()
    assert not crawler.flows()[0].final
    last = crawler.work_off()
    assert crawler("show").succeed().splitlines() == [
        "succeeded: 41 of 41",
        "{'pages': 40, 'links': 119}",
    ]
    fetched = re.findall(r"fetched (\S+),", first.output() + last.output())
    assert len(set(fetched)) == 40


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
