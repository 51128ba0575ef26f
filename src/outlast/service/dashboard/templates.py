"""The template environment: everything is escaped, and missing values are errors."""

from __future__ import annotations

from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined

from .formatting import FILTERS


@cache
def environment() -> Environment:
    env = Environment(
        loader=PackageLoader("outlast.service.dashboard", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    env.filters.update(FILTERS)
    return env


def render(template: str, facts: dict[str, object]) -> str:
    return environment().get_template(template).render(facts)
