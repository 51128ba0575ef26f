"""Servers and remote workers as processes, to be killed and started again."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import httpx

from outlast import Job, Outlast
from outlast.model.api_token import new_token
from outlast.ops import tokens
from tests.support import Database, Process, Processes, eventually
from tests.support.ports import free_port
from tests.support.requirements import require_program

EXAMPLES = Path(__file__).parents[2] / "examples"
EXAMPLE = EXAMPLES / "remote_worker.mjs"
POLLING_WORKER = Path(__file__).with_name("polling_worker.py")
PATIENCE = 30.0


class Fleet:
    def __init__(self, ol: Outlast, database: Database, processes: Processes) -> None:
        self.ol = ol
        self.database = database
        self.processes = processes
        self.folder = processes.folder
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        secret, new = new_token("fleet", ("work",))
        ol.store.run(tokens.create, new, "test")
        self.token_file = self.folder / "token"
        self.token_file.touch(0o600)
        self.token_file.write_text(secret)

    def serve(self, script: str = "outlast", lease: float = 3.0, offer: float = 2.0) -> Process:
        """A server, once it answers; with a script, one that is told what to do first."""
        place = {"OUTLAST_URL": self.database.url, "OUTLAST_SCHEMA": self.database.schema}
        said = ("serve", "--port", self.port, "--log-level", "warning")
        terms = ("--remote-lease", lease, "--offer-lease", offer)
        server = self.processes.python(script, *said, *terms, env=place)
        eventually(self._answers, PATIENCE, message=server.output)
        return server

    def _answers(self) -> bool:
        try:
            asked = httpx.get(f"{self.url}/api/v1/jobs", trust_env=False, verify=False)
        except httpx.TransportError:
            return False
        return asked.status_code == 401

    def work(
        self, kind: str = "python", credit: int = 4, url: str | None = None, *said: object
    ) -> Process:
        """A worker of either kind."""
        place = (url or self.url, self.token_file, credit)
        if kind == "polling-python":
            alone = (sys.executable, "-I", "-S")  # the standard library, and nothing else
            return self.processes.run(*alone, POLLING_WORKER, *place)
        if kind in ("node", "polling-node"):
            script = EXAMPLE if kind == "node" else EXAMPLES / "polling_worker.mjs"
            return self.processes.run(require_program("node"), script, *place)
        return self.processes.python(
            "outlast", "worker", "tests.remote.app:ol", "--server", url or self.url,
            "--token-file", self.token_file, "--concurrency", credit, "--grace", 0,
            "--spool", self.folder / "spool", *said,
        )  # fmt: skip

    def enqueue(self, task: str, number: int = 1, **args: Any) -> list[Job]:
        """Calls of a task that only the workers know."""
        from tests.remote import app

        call = getattr(app, task).job(**args)
        return self.ol.enqueue(*[call] * number)

    def ended(self, job: Job) -> Job:
        def final() -> Job | None:
            now = self.ol.job(job.id)
            return now if now.final else None

        return eventually(final, PATIENCE, message=lambda: self.ol.explain(job.id))

    def begun(self, job: Job) -> Job:
        """Once a remote worker has accepted it."""

        def accepted() -> Job | None:
            now = self.ol.job(job.id)
            return now if (now.worker or "").startswith("remote-") else None

        return eventually(accepted, PATIENCE, message=lambda: self.ol.explain(job.id))

    def remote_workers(self) -> list[str]:
        return [w.id for w in self.ol.workers() if w.id.startswith("remote-")]
