"""The tables of docs/reference/settings.md, made from the code.

`python -m tests.docs.settings_page` writes them anew; a test compares.
"""

from __future__ import annotations

import math
import re
from dataclasses import fields
from typing import Any

from outlast.model.settings import (
    EnqueueSettings,
    RetentionSettings,
    ServiceSettings,
    Settings,
    StoreSettings,
    WorkerSettings,
)
from tests.docs.pages import ROOT

PAGE = ROOT / "docs" / "reference" / "settings.md"
TABLES: dict[str, type[Settings]] = {
    kind.__name__: kind
    for kind in (StoreSettings, EnqueueSettings, WorkerSettings, RetentionSettings, ServiceSettings)
}
_PLACE = re.compile(r"<!-- made from (\w+) -->\n(.*?)<!-- end -->", re.DOTALL)


def rendered(page: str) -> str:
    """The page with every table as the code has it now."""
    return _PLACE.sub(
        lambda found: f"<!-- made from {found[1]} -->\n{table(TABLES[found[1]])}<!-- end -->", page
    )


def tables(page: str) -> list[str]:
    return [name for name, _ in _PLACE.findall(page)]


def table(kind: type[Settings]) -> str:
    head = "| setting | default | range | meaning | environment |\n|---|---|---|---|---|\n"
    return head + "".join(_row(spec) for spec in fields(kind))  # type: ignore[arg-type]


def _row(spec: Any) -> str:
    about = spec.metadata["about"]
    variable = f"OUTLAST_{spec.name.upper()}"
    return f"| `{spec.name}` | {_value(spec.default)} | {_range(spec)} | {about} | `{variable}` |\n"


def _range(spec: Any) -> str:
    if isinstance(spec.default, bool):
        return "true, false"
    low, high = spec.metadata["low"], spec.metadata["high"]
    return f"≥ {_value(low)}" if high == math.inf else f"{_value(low)} … {_value(high)}"


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{int(value)}" if value == int(value) else f"{value:g}"


if __name__ == "__main__":
    PAGE.write_text(rendered(PAGE.read_text("utf-8")), "utf-8")
