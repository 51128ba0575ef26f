"""Rules that the source keeps: nothing is executed that comes from data, no SQL is pieced together
from values, no setting is without effect, and no file tells where it was written."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path

import pytest

from outlast.model.settings import (
    RetentionSettings,
    ServiceSettings,
    StoreSettings,
    WorkerSettings,
)

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "outlast"

# Modules that turn data into code or objects.
BANNED = {"cloudpickle", "code", "codeop", "dill", "jsonpickle", "marshal", "pickle", "shelve"}
EXECUTES = {"eval", "exec", "compile", "__import__"}

# Who may import a module by a name, and where that name comes from.
IMPORTERS = {
    "__init__.py": "a table in the file itself",
    "bridges/__init__.py": "a table in the file itself",
    "cli/__init__.py": "a table in the file itself",
    "integrations/celery/app.py": "the app's own code: include, imports, autodiscover_tasks",
    "integrations/django/__init__.py": "a table in the file itself",
    "cli/apps.py": "the operator's own command line",
    "testing/__init__.py": "a table in the file itself",
    "worker/isolated_child.py": "the worker's own code, as arguments of a process that it starts",
}

# Where SQL is an f-string, because an identifier cannot be a parameter. Each one is the schema's
# name, checked by store/address.py against [a-z0-9_], or a constant of ours.
IDENTIFIERS = {
    ("integrations/django/store.py", "_version"): "the schema",
    ("integrations/django/store.py", "_apply"): "the schema",
    ("store/postgres/store.py", "transaction_settings"): "SET LOCAL of our own names and numbers",
    ("store/postgres/migration.py", "read_version"): "the schema",
    ("store/postgres/migration.py", "apply_migration"): "the schema",
    ("store/postgres/store.py", "listen_for_jobs"): "LISTEN takes no parameter: the schema",
    ("store/postgres/store.py", "listen_for_events"): "LISTEN takes no parameter: the schema",
    ("store/postgres/online_migration.py", "_index"): "the schema, or a constant",
    ("store/postgres/online_migration.py", "_is_done"): "the schema, or a constant",
    ("store/postgres/online_migration.py", "_record"): "the schema, or a constant",
    ("store/postgres/online_migration.py", "_record_version"): "the schema, or a constant",
    ("store/postgres/online_migration.py", "_transaction"): "the schema, or a constant",
    ("store/postgres/partitions.py", "_detach_concurrently"): "the schema, and the name of a day",
    ("store/postgres/partitions.py", "_transaction"): "the schema, and the name of a day",
    ("store/postgres/partitions.py", "create"): "the schema, and the name of a day",
    ("store/postgres/partitions.py", "drop"): "the schema, and the name of a day",
    ("store/sqlite/migration.py", "_record"): "the schema",
    ("store/sqlite/migration.py", "apply_steps"): "the schema",
    ("store/sqlite/migration.py", "read_version"): "the schema",
    ("store/sqlite/migration.py", "apply_migration"): "the schema",
    (
        "verify/faults/standby.py",
        "wait_caught_up",
    ): "a position that the server said, on a server of its own",
    ("verify/scenarios/database_faults.py", "_drop"): "a database of its own",
    ("verify/scenarios/database_faults.py", "far_moment"): "the schema",
    ("verify/scenarios/database_faults.py", "_database_of_bytes"): "a database of its own",
    ("verify/scenarios/stuck_workers.py", "_states"): "the schema",
    ("verify/scenarios/stuck_workers.py", "_update_row"): "the schema, and a column by name",
}

SQL = re.compile(
    r"^\s*(SELECT|INSERT|UPDATE|DELETE|CREATE|ALTER|DROP|TRUNCATE|SET|LISTEN|NOTIFY|COPY|WITH|PRAGMA"
    r"|SAVEPOINT|RELEASE|ROLLBACK|BEGIN|COMMIT|VACUUM|ATTACH)\b"
)


@cache
def parsed() -> dict[str, ast.Module]:
    """Every module of ours, by its path."""
    return {
        path.relative_to(SOURCE).as_posix(): ast.parse(path.read_text("utf-8"))
        for path in sorted(SOURCE.rglob("*.py"))
    }


def test_nothing_that_can_carry_code_is_imported() -> None:
    """JSON only: what is stored can never be executed."""
    found = [(file, name) for file, tree in parsed().items() for name in imports(tree)]
    assert [(file, name) for file, name in found if name.partition(".")[0] in BANNED] == []


def test_nothing_is_evaluated() -> None:
    called = [(file, name) for file, tree in parsed().items() for name in calls(tree)]
    assert [(file, name) for file, name in called if name in EXECUTES] == []
    assert [file for file, name in called if name in {"os.system", "os.popen"}] == []


def test_modules_are_imported_by_name_only_where_the_name_is_no_data() -> None:
    importing = re.compile(r"(importlib\.)?import_module|runpy\.run_\w+")
    found = {
        file for file, tree in parsed().items() for name in calls(tree) if importing.fullmatch(name)
    }
    assert found == set(IMPORTERS)


def test_sql_is_pieced_together_only_where_an_identifier_is_needed() -> None:
    found = {(file, function) for file, tree in parsed().items() for function in pieced_sql(tree)}
    assert found == set(IDENTIFIERS)


@pytest.mark.parametrize(
    "code",
    [
        "def f(x): run(f'SELECT * FROM job WHERE id = {x}')",
        "def f(x): run('DELETE FROM job WHERE id = ' + x)",
        "def f(x): run('SELECT %s' % x)",
        "def f(x): run('INSERT INTO job VALUES ({})'.format(x))",
    ],
)
def test_the_check_for_pieced_sql_notices_it(code: str) -> None:
    assert list(pieced_sql(ast.parse(code))) == ["f"]


def test_statements_take_named_parameters_only() -> None:
    """R198: values travel beside the text, never in it."""
    for file in sorted([*SOURCE.glob("store/sql/*.sql"), *SOURCE.glob("verify/sql/*.sql")]):
        text = re.sub(r"--.*$|'[^']*'", "", file.read_text("utf-8"), flags=re.MULTILINE)
        assert not re.search(r"[?{}$]|%\(|%s", text), file.name


def test_every_setting_has_an_effect() -> None:
    """R202: a setting that nothing reads is a promise that nothing keeps."""
    read = {
        node.attr if isinstance(node, ast.Attribute) else node.value
        for file, tree in parsed().items()
        if file != "model/settings.py"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) or _names_a_limit(file, node)
    }
    settings = (StoreSettings, WorkerSettings, RetentionSettings, ServiceSettings)
    assert [spec.name for kind in settings for spec in fields(kind) if spec.name not in read] == []


def _names_a_limit(file: str, node: ast.AST) -> bool:
    """Limits of slots are read by their names."""
    named = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return file == "service/slots.py" and named


def test_no_file_tells_where_it_was_written() -> None:
    homes = r"/(?:home|Users|root)/[\w.]"
    indexes = r"pythonhosted|extra-index|index-url|jfrog|artifactory"
    telling = re.compile(f"{homes}|{indexes}")
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in files()
        if path != Path(__file__)
        if (match := telling.search(path.read_text("utf-8", "replace")))
    ]
    assert found == []


def files() -> Iterator[Path]:
    for folder in ("src", "tests", "docs", "deploy", "examples", "benchmarks", "tools", ".ci"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                yield path
    yield from sorted([*ROOT.glob("*.md"), ROOT / "Makefile", ROOT / "pyproject.toml"])


def imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module or ""


def calls(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func)


def pieced_sql(tree: ast.AST, function: str = "") -> Iterator[str]:
    """The functions in which text that begins like SQL is joined with something else."""
    for node in ast.iter_child_nodes(tree):
        name = getattr(node, "name", function) if isinstance(node, ast.stmt) else function
        if (text := joined(node)) is not None and SQL.match(text):
            yield name
        yield from pieced_sql(node, name)


def joined(node: ast.AST) -> str | None:
    """The beginning of a text that is made at run time."""
    match node:
        case ast.JoinedStr(values=[ast.Constant(value=str(text)), *_]):
            return text
        case ast.BinOp(left=ast.Constant(value=str(text))):
            return text
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str(text)), attr="format")):
            return text
    return None
