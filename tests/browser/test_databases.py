"""The page over several databases: without barriers, and live."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from outlast import Databases, Outlast
from outlast.model.api_token import new_token
from outlast.ops import tokens
from outlast.service import services
from tests.browser.test_barriers import LOOK, PHONE, THEMES
from tests.service.serving import running
from tests.support.browser import axe


@pytest.mark.parametrize(
    "window", [{}, pytest.param(PHONE, marks=pytest.mark.slow)], ids=["desktop", "phone"]
)
def test_it_has_no_barrier_and_follows_what_happens(
    browser: Any, tmp_path: Path, window: dict[str, Any]
) -> None:
    ols = {name: Outlast(f"sqlite:///{tmp_path}/{name}.db") for name in ("eu", "us")}
    ols["asia"] = Outlast("postgresql://127.0.0.1:1/none")
    databases = Databases(ols, {"acme": "eu"})

    @databases.task(tenant="acme")
    def greet() -> None: ...

    secret, new = new_token("test", ("read",))
    with running(services(databases)) as url:
        page = browser.new_context(reduced_motion="reduce", **window).new_page()
        troubles: list[str] = []
        page.on("console", lambda said: troubles.append(said.text))
        page.on("pageerror", lambda error: troubles.append(str(error)))

        def look() -> None:
            page.evaluate(axe())
            assert [one for theme in THEMES for one in page.evaluate(LOOK, theme)] == []

        page.goto(url)
        page.wait_for_selector("text=asia is unreachable")
        look()
        greet.enqueue()
        page.wait_for_selector("tr:has-text('eu') td.amount >> text=1")
        assert troubles == []
        ols["eu"].store.run(tokens.create, new, "test")
        page.wait_for_selector("tr:has-text('eu') >> text=Log in")
        ols["us"].store.run(tokens.create, new_token("test", ("read",))[1], "test")
        page.wait_for_selector("text=Log in to a database")  # there are no local callers any more
        look()
        page.fill("#database", "eu")
        page.press("#database", "Enter")
        page.fill("#token", secret)
        page.press("#token", "Enter")
        page.click("text=All databases")
        page.wait_for_selector("text=asia is unreachable")
        page.context.close()
    for ol in ols.values():
        ol.close()
