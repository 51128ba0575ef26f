"""The default run is short, and leaves out no promise: what takes long has a small sample in it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
ROW = re.compile(r"\bR\d{3}\b")
LEFT_OUT = {"slow", "campaign"}

# Fifty failovers of a Patroni cluster, which take minutes.
BY_CAMPAIGNS_ALONE = {"R250"}


def rows_of(tests: Iterable[tuple[str, set[str]]]) -> set[str]:
    return {row for docstring, _ in tests for row in ROW.findall(docstring)}


def every_test(folder: Path) -> Iterator[tuple[str, set[str]]]:
    """The docstring and the marks of every test function; marks of single parameters are not its
    own, since the other parameters run."""
    for file in sorted(folder.rglob("test_*.py")):
        tree = ast.parse(file.read_text("utf-8"))
        yield from functions_in(tree.body, marks_of_module(tree))


def functions_in(body: list[ast.stmt], inherited: set[str]) -> Iterator[tuple[str, set[str]]]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from functions_in(node.body, inherited | marks(node.decorator_list))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or "", inherited | marks(node.decorator_list)


def marks(decorators: list[ast.expr]) -> set[str]:
    named = (ast.unparse(node.func if isinstance(node, ast.Call) else node) for node in decorators)
    return {name.removeprefix("pytest.mark.") for name in named}


def marks_of_module(tree: ast.Module) -> set[str]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark":
            value = node.value
            return marks(value.elts if isinstance(value, ast.List | ast.Tuple) else [value])
    return set()


def test_every_row_has_a_test_in_the_default_run() -> None:
    tests = list(every_test(TESTS))
    default = [(docstring, own) for docstring, own in tests if not own & LEFT_OUT]
    assert len(rows_of(default)) > 200
    assert rows_of(tests) - rows_of(default) == BY_CAMPAIGNS_ALONE


@pytest.mark.parametrize(
    "source",
    [
        "@pytest.mark.slow\ndef test_a():\n    'R001'",
        "pytestmark = [pytest.mark.slow]\ndef test_a():\n    'R001'",
        "@pytest.mark.slow\nclass TestA:\n    async def test_a(self):\n        'R001'",
        "@pytest.mark.campaign\n@pytest.mark.timeout(9)\ndef test_a():\n    'R001'",
    ],
)
def test_a_row_without_a_test_in_the_default_run_is_noticed(tmp_path: Path, source: str) -> None:
    (tmp_path / "test_small.py").write_text(f"import pytest\n{source}\n")
    [(docstring, own)] = every_test(tmp_path)
    assert docstring == "R001" and own & LEFT_OUT
