"""The tables of docs/reference/metrics.md, made from the catalogue.

`python -m tests.docs.metrics_page` writes them anew; a test compares.
"""

from __future__ import annotations

import re

from outlast.metrics.catalogue import CATALOGUE, Metric, Origin
from tests.docs.pages import ROOT

PAGE = ROOT / "docs" / "reference" / "metrics.md"
_PLACE = re.compile(r"<!-- metrics of: (.*?) -->\n(.*?)<!-- end -->", re.DOTALL)


def rendered(page: str) -> str:
    """The page with every table as the code has it now. Each metric stands in one of them."""
    shown = {Origin(who) for found in _PLACE.finditer(page) for who in found[1].split(" | ")}
    assert shown == set(Origin), "some metrics are in no table"
    return _PLACE.sub(lambda found: _marked(found[1]), page)


def _marked(whose: str) -> str:
    return f"<!-- metrics of: {whose} -->\n{_table(whose)}<!-- end -->"


def _table(whose: str) -> str:
    who = {Origin(one) for one in whose.split(" | ")}
    rows = [_row(metric) for metric in CATALOGUE.values() if metric.origin in who]
    return "| metric | kind | labels | meaning |\n|---|---|---|---|\n" + "".join(rows)


def _row(metric: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    return f"| `{metric.name}` | {metric.kind} | {labels} | {metric.about} |\n"


if __name__ == "__main__":
    PAGE.write_text(rendered(PAGE.read_text("utf-8")), "utf-8")
