"""Pictures of the dashboard, from the same day's work each time.

python -m tools.screens FOLDER    every page: phone and desktop, light and dark
python -m tools.screens --docs    those of the docs and of the README (`make screenshots`)
"""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from PIL import Image

from tests.browser.conftest import visiting
from tests.browser.pages import paths
from tests.browser.seeding import Stage, a_day
from tests.browser.visiting import Visitor
from tests.support.browser import chromium
from tests.support.databases import sqlite_database

IMAGES = Path(__file__).parents[1] / "docs" / "images"
WIDE = {"viewport": {"width": 1180, "height": 760}}
TALL = {"viewport": {"width": 1180, "height": 830}}
PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}
THEMES = ("light", "dark")
COLOURS = 128  # enough for flat pages, and a third of the size
MAX_BYTES = 200_000  # of one picture
MAX_HEIGHT = 4_000  # pixels of a long page


@dataclass(frozen=True)
class Shot:
    name: str
    path: str
    theme: str
    window: dict[str, Any]
    whole: bool = False  # down to the end of the page


def of_docs(stage: Stage) -> list[Shot]:
    job, flow = f"/jobs/{stage.jobs['running']}", f"/flows/{stage.flows[0]}"
    return [
        Shot("overview", "/", "light", TALL),
        Shot("overview-dark", "/?range=day", "dark", TALL),
        Shot("week", "/?range=week", "light", TALL),
        Shot("jobs", "/jobs", "light", WIDE),
        Shot("jobs-phone", "/jobs", "light", PHONE),
        Shot("job", job, "light", WIDE),
        Shot("job-dark", f"/jobs/{stage.jobs['dead']}", "dark", WIDE),
        Shot("bulk", "/jobs/redrive?state=dead&task=charge_card", "light", WIDE),
        Shot("flows", "/flows", "light", WIDE),
        Shot("flow", flow, "light", WIDE),
        Shot("dead", "/dead", "light", WIDE),
        Shot("queues", "/queues", "light", WIDE),
        Shot("workers", "/workers", "light", WIDE),
        Shot("recovery", "/recovery", "light", WIDE),
        Shot("schedule", "/schedule", "light", WIDE),
        Shot("tokens", "/tokens", "light", WIDE),
    ]


def of_every_page(visitor: Visitor) -> list[Shot]:
    stage = visitor.stage
    token = visitor.database.rows("SELECT id FROM outlast_token ORDER BY id")[0][0]
    pages = paths(
        running=stage.jobs["running"], dead=stage.jobs["dead"], flow=stage.flows[0], token=token
    )
    windows: dict[str, dict[str, Any]] = {"desktop": WIDE, "phone": PHONE}
    return [
        Shot(f"{_file_name(path)}-{name}-{theme}", path, theme, windows[name], whole=True)
        for path, name, theme in product(pages, windows, THEMES)
    ]


def _file_name(path: str) -> str:
    """A page's address as a name: without the ids of this run."""
    words = re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "one", path)
    return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-") or "overview"


@contextmanager
def a_visitor() -> Iterator[Visitor]:
    with TemporaryDirectory() as folder, chromium() as browser:
        database = sqlite_database(Path(folder))
        stage = a_day(database)
        with visiting(browser, database, stage) as visitor:
            yield visitor


def take(visitor: Visitor, shots: list[Shot], folder: Path, start: str = "") -> None:
    """Take pictures, each of at most MAX_BYTES."""
    folder.mkdir(parents=True, exist_ok=True)
    pages: dict[str, Any] = {}
    for shot in shots:
        window = str(shot.window)
        if window not in pages:
            pages[window] = visitor.open(**shot.window)
        page = visitor.visit(shot.path, pages[window])
        page.evaluate("theme => document.documentElement.dataset.theme = theme", shot.theme)
        page.wait_for_timeout(300)  # what is live has come
        (folder / f"{start}{shot.name}.png").write_bytes(_small(_picture(page, shot)))


def _picture(page: Any, shot: Shot) -> bytes:
    if not shot.whole:
        return bytes(page.screenshot())
    size = page.evaluate("[innerWidth, document.documentElement.scrollHeight]")
    clip = {"x": 0, "y": 0, "width": size[0], "height": min(size[1], MAX_HEIGHT)}
    return bytes(page.screenshot(full_page=True, clip=clip))


def _small(png: bytes) -> bytes:
    picture = Image.open(io.BytesIO(png)).convert("RGB")
    for colours in (COLOURS, 32, 16, 8):
        small = picture.quantize(colours, dither=Image.Dither.NONE)
        out = io.BytesIO()
        small.save(out, "png", optimize=True)
        if len(out.getvalue()) <= MAX_BYTES:
            break
    return out.getvalue()


def main(args: list[str]) -> None:
    if len(args) != 1:
        raise SystemExit(__doc__)
    with a_visitor() as visitor:
        if args == ["--docs"]:
            take(visitor, of_docs(visitor.stage), IMAGES, "dashboard-")
        else:
            take(visitor, of_every_page(visitor), Path(args[0]))


if __name__ == "__main__":
    main(sys.argv[1:])
