"""Messages of errors: made from templates on the classes, with typed facts, also under `-OO`."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from string import Formatter
from typing import Any, get_type_hints

import pytest

import outlast
from outlast.model import errors
from outlast.model.errors import OutlastError
from outlast.remote import http_client  # which has an error of its own

ERRORS = {
    name: value
    for name, value in {**vars(errors), **vars(http_client)}.items()
    if isinstance(value, type) and issubclass(value, OutlastError)
}
# They list their problems.
OWN_SENTENCE = {
    "InvalidArguments", "InvalidResult", "InvalidFlow", "InvalidSignal", "ResultMismatch",
}  # fmt: skip
SAMPLES: dict[Any, Any] = {str: "thing", int: 7000, float: 2.5, bool: True}

RAISED = """
import json, sys
from importlib import import_module
from outlast.model.errors import InvalidArguments, InvalidFlow, InvalidResult, ResultMismatch
from outlast.model.errors import InvalidSignal
from outlast.model.errors import Problem
assert False, "asserts are not removed: this is no -OO"
said = {}
for module, name, facts in json.load(sys.stdin):
    said[name] = str(getattr(import_module(module), name)(**facts))
problems = [Problem("doc", "is missing")]
said["InvalidArguments"] = str(InvalidArguments("shrink", problems))
said["InvalidResult"] = str(InvalidResult(problems))
said["InvalidFlow"] = str(InvalidFlow(problems))
said["InvalidSignal"] = str(InvalidSignal("approval", problems))
said["ResultMismatch"] = str(ResultMismatch("17", "shrink", problems))
print(json.dumps(said))
"""


def test_messages_are_the_same_without_docstrings() -> None:
    """`python -OO` removes docstrings and asserts; an error says what it says without it."""
    plain = [
        (kind.__module__, name, facts_of(kind))
        for name, kind in ERRORS.items()
        if name not in OWN_SENTENCE
    ]
    run = subprocess.run(
        [sys.executable, "-OO", "-c", RAISED],
        input=json.dumps(plain),
        capture_output=True,
        text=True,
        check=True,
    )
    said = json.loads(run.stdout)
    assert said.keys() == ERRORS.keys()
    for _, name, facts in plain:
        assert said[name] == str(ERRORS[name](**facts)) != ""
    assert said["NoBlobStore"].startswith("A payload of job thing is stored by reference")
    assert said["InvalidArguments"] == "shrink: 1 problem with the arguments\n  doc: is missing"
    assert said["InvalidResult"].endswith("doc: is missing")
    assert said["InvalidFlow"].endswith("doc: is missing")
    assert said["InvalidSignal"].startswith("signal 'approval': 1 problem")
    assert said["ResultMismatch"].startswith("The result of job 17 is not what shrink is")


@pytest.mark.parametrize("name", sorted(set(ERRORS) - OWN_SENTENCE))
def test_every_fact_of_a_message_is_typed_and_is_an_attribute(name: str) -> None:
    kind = ERRORS[name]
    facts = facts_of(kind)
    error = kind(**facts)
    for fact in facts:
        assert getattr(error, fact) == error.facts[fact] == facts[fact]


def test_every_fact_that_is_given_is_typed() -> None:
    """What a caller may read from an error stands on its class."""
    untyped = [
        f"{path.name}:{call.lineno} {name}({fact}=…)"
        for path, call, name in raised()
        for fact in [keyword.arg for keyword in call.keywords]
        if fact not in get_type_hints(ERRORS[name])
    ]
    assert untyped == []


def facts_of(kind: type[OutlastError]) -> dict[str, Any]:
    """A value for each fact of its template, by the type that the class has for it."""
    hints = get_type_hints(kind)
    named = [field for _, field, _, _ in Formatter().parse(kind.template) if field]
    return {name: sample(hints[name]) for name in named}


def sample(hint: Any) -> Any:
    return SAMPLES[hint] if hint in SAMPLES else sample(hint.__args__[0])


def raised() -> Iterator[tuple[Path, ast.Call, str]]:
    """Every call of an error's class in the package."""
    for path in Path(outlast.__file__ or "").parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            name = getattr(node.func, "id", None) if isinstance(node, ast.Call) else None
            if isinstance(node, ast.Call) and name in ERRORS and name not in OWN_SENTENCE:
                yield path, node, name
