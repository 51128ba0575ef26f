"""The environment that pages are made in: all is escaped, and what is missing is an error."""

from __future__ import annotations

from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from .words import FILTERS


@cache
def environment() -> Environment:
    made = Environment(
        loader=PackageLoader("outlast.service.dashboard", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters.update(FILTERS)
    return made


def rendered(template: str, facts: dict[str, Any]) -> str:
    return environment().get_template(template).render(facts)
