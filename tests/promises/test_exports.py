"""Public is what `outlast` exports: all of it, in order, and cheap to import."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import outlast
from outlast.model import errors

HEAVY = {"asyncpg", "click", "cronsim", "django", "psycopg", "pydantic", "rich", "sqlalchemy"}


def test_exports_are_sorted_and_importable() -> None:
    assert outlast.__all__ == sorted(set(outlast.__all__))
    for name in outlast.__all__:
        assert getattr(outlast, name) is not None, name


def test_every_error_is_exported() -> None:
    """A caller can catch whatever can be raised."""
    public = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and value.__module__ == errors.__name__
    }
    assert public <= set(outlast.__all__)


def test_type_checkers_see_what_is_exported() -> None:
    tree = ast.parse(Path(outlast.__file__ or "").read_text())
    (block,) = [
        node
        for node in tree.body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    imported = [
        alias.name
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    ]
    assert sorted([*imported, "__version__"]) == outlast.__all__


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Outlost'"):
        outlast.Outlost  # noqa: B018


def test_importing_outlast_imports_nothing_heavy() -> None:
    assert loaded("import outlast") & HEAVY == set()


def test_defining_a_task_imports_neither_pydantic_nor_a_driver() -> None:
    """A program that only imports its tasks pays for no validation and no database."""
    defining = "import outlast; outlast.Outlast('sqlite:///x.db').task(lambda: None)"
    assert loaded(defining) & HEAVY == set()


def test_the_check_for_heavy_imports_notices_one() -> None:
    assert loaded("import outlast; import click") & HEAVY == {"click"}


def test_importing_outlast_is_quick() -> None:
    """Hundredths of a second; asked for loosely, the best of five, because machines are busy."""
    timed = "import time; t = time.perf_counter(); import outlast; print(time.perf_counter() - t)"
    assert min(float(python(timed)) for _ in range(5)) < 0.25


def loaded(code: str) -> set[str]:
    """The top-level modules that a fresh interpreter has loaded after running the code."""
    show = "import json, sys; print(json.dumps(sorted({m.partition('.')[0] for m in sys.modules})))"
    return set(json.loads(python(f"{code}; {show}")))


def python(code: str) -> str:
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return run.stdout
