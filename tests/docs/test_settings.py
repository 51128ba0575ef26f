"""docs/reference/settings.md says what the code says."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any

from outlast import Retry
from outlast.model import flow_builder, options, safe_text
from outlast.model import retry as retrying
from outlast.model.arguments import storable
from outlast.model.options import Options
from outlast.model.task import MAX_HOOK_CHARS, TaskDefinition
from outlast.worker import context
from tests.docs.settings_page import PAGE, TABLES, rendered, tables

TEXT = PAGE.read_text("utf-8")


def test_every_setting_is_documented_with_its_default_and_range() -> None:
    """R202: a changed default or a new field turns this red."""
    again = "write the tables anew: python -m tests.docs.settings_page"
    assert rendered(TEXT) == TEXT, again
    assert tables(TEXT) == list(TABLES)


def test_every_option_of_a_job_is_documented_with_its_default() -> None:
    """R202"""
    documented = rows("## Options of a task or a job")
    assert [name for name, *_ in documented] == [field.name for field in fields(Options)]
    plain = TaskDefinition(name="task", function=lambda: None).call("", Options(), (), {})
    for name, default, *_ in documented:
        if name != "retry":
            assert default == shown(getattr(plain, _COLUMNS.get(name, name))), name


_COLUMNS = {
    "expires": "expires_in",
    "when": "needs",
    "unique": "unique_mode",
    "debounce": "unique_span",
} | dict.fromkeys(("on_success", "on_dead", "on_cancel", "tell"), "hooks")


def test_the_retry_policy_is_documented_with_its_defaults() -> None:
    """R202"""
    documented = {name: default for name, default, *_ in rows("## Retry")}
    assert documented == {field.name: shown(field.default) for field in fields(Retry)}


def test_ranges_and_limits_are_those_of_the_code() -> None:
    """R202, R141"""
    ranges = {name: span for name, _, span, _ in rows("## Options of a task or a job")}
    assert ranges["priority"] == f"{options.MIN_PRIORITY} … {options.MAX_PRIORITY}"
    assert ranges["max_attempts"] == f"1 … {retrying.MAX_ATTEMPTS}"
    for name in ("queue", "tenant", "key"):
        assert ranges[name] == f"1 … {options.MAX_NAME_CHARS} characters"
    limits = [limit for _, limit in rows("## Limits")]
    assert limits == [
        f"{storable.MAX_PAYLOAD:,} bytes",
        f"{MAX_HOOK_CHARS:,} characters",
        f"{storable.MAX_DEPTH} levels",
        f"{safe_text.MESSAGE_LIMIT:,} and {safe_text.TRACEBACK_LIMIT:,} characters",
        f"{flow_builder.MAX_EDGES:,}",
        f"{context.MAX_NOTE_LENGTH:,} characters",
    ]


def rows(heading: str) -> list[list[str]]:
    """The cells of the first table under a heading, without its two head lines."""
    section = TEXT.split(f"{heading}\n", 1)[1].split("\n## ")[0]
    lines = re.findall(r"^\| (.*) \|$", section, re.MULTILINE)[1:]
    return [[cell.strip().strip("`") for cell in line.split(" | ")] for line in lines]


def shown(value: Any) -> str:
    if value is None or value == ():
        return "none"
    return f"{value:g}" if isinstance(value, int | float) else str(value)
