"""Pictures of every page for the docs, from the same day's work each time: `make screenshots`."""

from __future__ import annotations

import io
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from PIL import Image

from tests.browser.conftest import visiting
from tests.browser.seeding import Stage, a_day
from tests.support.browser import chromium
from tests.support.databases import sqlite_database

IMAGES = Path(__file__).parents[2] / "docs" / "images"
WIDE = {"viewport": {"width": 1180, "height": 760}}
TALL = {"viewport": {"width": 1180, "height": 830}}
NARROW = {"viewport": {"width": 360, "height": 640}, "is_mobile": True, "has_touch": True}
COLOURS = 128  # enough for flat pages, and a third of the size


def shots(stage: Stage) -> dict[str, tuple[str, str, dict[str, Any]]]:
    """By name: the page, the theme, the window."""
    job, flow = f"/jobs/{stage.jobs['running']}", f"/flows/{stage.flows[0]}"
    return {
        "overview": ("/", "light", TALL),
        "overview-dark": ("/?range=day", "dark", TALL),
        "week": ("/?range=week", "light", TALL),
        "jobs": ("/jobs", "light", WIDE),
        "jobs-phone": ("/jobs", "light", NARROW),
        "job": (job, "light", WIDE),
        "job-dark": (f"/jobs/{stage.jobs['dead']}", "dark", WIDE),
        "bulk": ("/jobs/redrive?state=dead&task=charge_card", "light", WIDE),
        "flows": ("/flows", "light", WIDE),
        "flow": (flow, "light", WIDE),
        "dead": ("/dead", "light", WIDE),
        "queues": ("/queues", "light", WIDE),
        "workers": ("/workers", "light", WIDE),
        "recovery": ("/recovery", "light", WIDE),
        "schedule": ("/schedule", "light", WIDE),
        "tokens": ("/tokens", "light", WIDE),
    }


def main() -> None:
    IMAGES.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as folder, chromium() as browser:
        database = sqlite_database(Path(folder))
        stage = a_day(database)
        with visiting(browser, database, stage) as visitor:
            pages = {str(window): visitor.open(**window) for window in (WIDE, TALL, NARROW)}
            for name, (path, theme, window) in shots(stage).items():
                page = visitor.visit(path, pages[str(window)])
                page.evaluate("theme => document.documentElement.dataset.theme = theme", theme)
                page.wait_for_timeout(300)  # what is live has come
                keep(name, page.screenshot())


def keep(name: str, png: bytes) -> None:
    picture = Image.open(io.BytesIO(png)).convert("RGB")
    small = picture.quantize(COLOURS, dither=Image.Dither.NONE)
    small.save(IMAGES / f"dashboard-{name}.png", optimize=True)


if __name__ == "__main__":
    main()
