"""The peers' files: what can be known of them without their libraries and without a network."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest

from benchmarks.__main__ import PEERS
from benchmarks.contender import OURS, PEER, Contender, found_in
from benchmarks.environments import Missing, equipped
from tests.support.requirements import require_program

EVERYBODY = [*found_in(OURS), *found_in(PEERS)]
METHODS = {
    "many": "enqueue_many",
    "within": "enqueue_within",
    "later": "enqueue_later",
    "group": "enqueue_group",
    "lanes": "enqueue_in_lanes",
    "slow": "enqueue_slow",
    "fill": "fill",
}
every_contender = pytest.mark.parametrize("contender", EVERYBODY, ids=lambda c: c.label)


def test_no_two_have_the_same_name() -> None:
    assert len({contender.label for contender in EVERYBODY}) == len(EVERYBODY)


@every_contender
def test_a_contender_can_what_it_says_and_says_what_it_can(contender: Contender) -> None:
    methods = _methods(contender)
    assert {"__init__", "prepare", "enqueue", "left", "work"} <= methods
    for word, method in METHODS.items():
        assert (word in contender.can) == (method in methods), method
    assert contender.can <= {*METHODS, "async", "sync", "wake"}
    assert contender.can & {"async", "sync"}
    assert contender.durability.endswith(".")


@pytest.mark.parametrize("contender", found_in(PEERS), ids=lambda c: c.label)
def test_peers_import_nothing_of_ours(contender: Contender) -> None:
    imported = _imported(contender)
    assert imported
    assert not imported & {"outlast", "benchmarks", "tests"}
    assert contender.kind == PEER


def test_an_environment_is_made_once(tmp_path: Path) -> None:
    """Nothing is asked of PyPI by one that requires nothing."""
    plain = Contender("plain", "sqlite", tmp_path / "plain.py")
    made = equipped(plain, tmp_path / "venvs")
    assert Path(made.interpreter).parent == tmp_path / "venvs" / "plain" / "bin"
    mark = tmp_path / "venvs" / "plain" / "mark"
    mark.touch()
    assert equipped(plain, tmp_path / "venvs") == made
    assert mark.exists()
    equipped(plain, tmp_path / "venvs", fresh=True)
    assert not mark.exists()


def test_a_python_that_is_not_there_is_said(tmp_path: Path) -> None:
    newest = f"{sys.version_info.major}.{sys.version_info.minor + 50}"
    future = Contender("future", "sqlite", tmp_path / "future.py", python=newest)
    with pytest.raises(Missing, match=f"needs Python {newest}"):
        equipped(future, tmp_path / "venvs")


def test_an_environment_for_node_has_its_file_beside_its_packages(tmp_path: Path) -> None:
    require_program("npm")
    plain = Contender("plain", "sqlite", _toy(tmp_path))
    made = equipped(plain, tmp_path / "venvs")
    home = tmp_path / "venvs" / "plain"
    assert made.file == home / "toy.mjs" and Path(made.interpreter).name == "node"
    plain.file.write_text("// changed")
    assert equipped(plain, tmp_path / "venvs").file.read_text() == "// changed"


def test_where_there_is_no_node_its_contenders_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Missing, match=r"it needs Node\.js: there is no node"):
        equipped(Contender("plain", "sqlite", _toy(tmp_path)), tmp_path / "venvs")


def _toy(folder: Path) -> Path:
    file = folder / "toy.mjs"
    file.write_text("export class Contender {}")
    return file


def _methods(contender: Contender) -> set[str]:
    text = contender.file.read_text()
    if contender.is_node:
        found = re.findall(r"^  (?:async )?(\w+)\([^)]*\) \{", text, re.M)
        return {"__init__" if name == "constructor" else name for name in found}
    (class_,) = [
        node
        for node in ast.parse(text).body
        if isinstance(node, ast.ClassDef) and node.name == "Contender"
    ]
    return {node.name for node in class_.body if isinstance(node, ast.stmt) and _named(node)}


def _imported(contender: Contender) -> set[str]:
    text = contender.file.read_text()
    if contender.is_node:
        return set(re.findall(r'^import .* from "(.+)";$', text, re.M))
    found = (name for node in ast.walk(ast.parse(text)) for name in _imports(node))
    return {name.partition(".")[0] for name in found}


def _named(node: ast.stmt) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


def _imports(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module or ""] if isinstance(node, ast.ImportFrom) else []
