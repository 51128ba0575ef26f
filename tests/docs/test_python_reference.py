"""docs/reference/python.md names everything public, as it is."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from typing import Any

import pytest

import outlast
from outlast import (
    Context,
    Databases,
    Flow,
    FlowState,
    Job,
    Outlast,
    Retry,
    Task,
    Worker,
    chain,
    group,
)
from outlast.model import errors
from outlast.model.lifecycle import Outcome, State
from outlast.ops import report
from tests.docs.pages import ROOT, Page

PAGE = Page(ROOT / "docs" / "reference" / "python.md")

# Public to the worker's own parts, not to users.
INTERNAL = {
    Context: {"disown", "jobs"},
    Worker: {
        name
        for name in vars(Worker)
        if not name.startswith("_") and name not in {"run", "arun", "stop"}
    },
}


def test_every_public_name_is_documented() -> None:
    """R202"""
    words = set(re.findall(r"\w+", PAGE.text))
    assert [name for name in outlast.__all__ if name not in words] == []


@pytest.mark.parametrize("kind", [Outlast, Databases, Task, Context, Worker])
def test_every_method_is_documented_with_its_signature(kind: type) -> None:
    """R202"""
    documented = spans(section(kind.__name__))
    for name, method in methods(kind).items():
        twin = methods(kind).get(name[1:]) if name.startswith("a") else None
        if twin is None:
            assert signature(name, method) in documented
        else:
            assert name in documented
            assert signature("", method) == signature("", twin), f"{name} is no twin of {name[1:]}"


def test_constructors_are_documented_with_their_signatures() -> None:
    """R202"""
    for kind in (Outlast, Retry):
        assert signature(kind.__name__, kind.__init__) in spans(section(kind.__name__))


def test_what_flows_are_made_of_is_documented_with_its_signature() -> None:
    """R202"""
    documented = spans(section("Flows"))
    made = {"chain": chain, "group": group, "Flow": Flow.__init__, "then": group().then}
    for name, function in (made | methods(Flow)).items():
        assert signature(name, function) in documented


def test_every_fact_of_a_flow_is_documented() -> None:
    """R202"""
    facts = {name.partition("(")[0] for name in spans(section("FlowState"))}
    assert {name for name in dir(FlowState) if not name.startswith("_")} <= facts


@pytest.mark.parametrize("kind", [Job, report.Attempt, report.Event, report.Queue, report.Duty])
def test_every_field_of_what_is_read_is_documented(kind: type) -> None:
    """R202, R042"""
    assert {field.name for field in fields(kind)} <= set(spans(about(kind)))


def test_a_listed_worker_is_documented() -> None:
    assert [field.name for field in fields(report.WorkerInfo)] == spans(about(report.WorkerInfo))[
        1:
    ]


def test_states_and_outcomes_are_documented() -> None:
    assert ", ".join(f"`{state}`" for state in State) in PAGE.text
    listed = section("What you read").split("An attempt's `outcome` is one of ")[1]
    assert spans(listed) == [str(outcome) for outcome in Outcome]


def test_the_error_tree_is_the_one_in_the_code() -> None:
    """R202"""
    (block,) = [block for block in PAGE.blocks if block.language == "text"]
    assert block.text == tree()


def test_the_error_tree_is_drawn_as_it_is() -> None:
    drawn = re.findall(r"^([│├└─ ]*)(\w+)", tree().split("\n\n")[0], re.MULTILINE)
    real = {cls.__name__: depth(cls) for cls in vars(errors).values() if is_error(cls)}
    assert {name: len(bars) // 4 for bars, name in drawn} == real


def tree() -> str:
    """The picture in the docstring of errors.py."""
    lines = inspect.cleandoc(errors.__doc__ or "").splitlines()
    drawn = [line[4:] for line in lines if line.startswith("    ") or not line]
    return "\n".join(drawn).strip() + "\n"


def is_error(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, errors.OutlastError)


def depth(cls: type) -> int:
    return sum(is_error(base) for base in cls.__mro__) - 1


def methods(kind: type) -> dict[str, Any]:
    return {
        name: getattr(kind, name)
        for name in dir(kind)
        if not name.startswith("_")
        and callable(getattr(kind, name))
        and name not in INTERNAL.get(kind, ())
    }


def signature(name: str, function: Any) -> str:
    """As people write it: no self, no types."""
    parameters = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for parameter in inspect.signature(function).parameters.values()
        if parameter.name != "self"
    ]
    shown = str(inspect.Signature(parameters)).replace(", /", "")
    return f"{name}{shown}"


def section(name: str) -> str:
    return PAGE.text.split(f"\n## {name}\n", 1)[1].split("\n## ", 1)[0]


def about(kind: type) -> str:
    """Where the fields of a value are listed: its section, or its row."""
    if kind is Job:
        return section("Job")
    (row,) = re.findall(rf"^\| `{kind.__name__}` \|.*$", section("What you read"), re.MULTILINE)
    return str(row)


def spans(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)
