"""The sample app in a folder of its own: as it is for Celery, or moved by its one import."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.support import Database, Processes
from tests.support.processes import Process

SAMPLE = Path(__file__).parent / "sample"
BEFORE = "from celery import"
AFTER = "from outlast.integrations.celery import"
CELERY_WORKER = (
    "-m", "celery", "-A", "shop", "worker", "--pool", "threads", "--concurrency", "4",
    "--without-gossip", "--without-mingle", "--loglevel", "WARNING", "-Q", "celery,mail",
)  # fmt: skip


@dataclass
class CeleryShop:
    """A copy of the sample. `moved`: it runs on Outlast."""

    folder: Path
    env: dict[str, str | None]
    moved: bool

    @classmethod
    def copied(
        cls, folder: Path, broker: str, backend: str, database: Database, moved: bool
    ) -> CeleryShop:
        folder.mkdir(parents=True)
        for file in SAMPLE.glob("*.py"):
            shutil.copy(file, folder)
        if moved:
            text = (folder / "shop.py").read_text()
            assert text.count(BEFORE) == 1 and "import celery" not in text
            (folder / "shop.py").write_text(text.replace(BEFORE, AFTER))
        notes = folder / "notes"
        notes.touch()
        env: dict[str, str | None] = {
            "SHOP_BROKER": broker,
            "SHOP_BACKEND": backend,
            "SHOP_NOTES": str(notes),
            "OUTLAST_URL": database.url,
            "OUTLAST_SCHEMA": database.schema,
        }
        return cls(folder, env, moved)

    def worker(self, processes: Processes, name: str = "shop:app") -> Process:
        if self.moved:
            command = ("-m", "outlast", "worker", name, "--concurrency", "4")
        else:
            command = CELERY_WORKER
        return processes.run(sys.executable, *command, env=self.env, cwd=self.folder)

    def checks(self, processes: Processes) -> Process:
        """The tests of the app, run by pytest."""
        (self.folder / "pytest.ini").write_text("[pytest]\n")
        command = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "shop_checks.py")
        return processes.run(sys.executable, *command, env=self.env, cwd=self.folder)
