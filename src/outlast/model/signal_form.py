"""Forms for people who answer a signal, made from the JSON schema of its value.

A truth value and an enumeration become buttons, the fields of a model become inputs; any other
value is written as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from .arguments.signal_value import write_signal
from .errors import InvalidSignal, Problem
from .signal_link import Choice

WHOLE = "value"  # the input of a value that is not a model
PREFIX = "field."  # of the names of other inputs, which may be anything
MAX_BUTTONS = 6


class InputKind(StrEnum):
    CHOICE = "choice"
    TEXT = "text"
    INTEGER = "integer"
    NUMBER = "number"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class FormInput:
    """One input of the form. `choices` have JSON texts as values."""

    name: str
    label: str
    kind: InputKind
    required: bool = True
    choices: tuple[Choice, ...] = ()
    default: str = ""
    hint: str = ""


def form_buttons(schema: Mapping[str, Any] | None) -> tuple[Choice, ...]:
    """The values of a type with few values, as buttons; otherwise none."""
    found = _choices(_resolved(schema or {}, schema or {}))
    return found if len(found) <= MAX_BUTTONS else ()


def form_inputs(schema: Mapping[str, Any] | None) -> list[FormInput]:
    """The inputs for a value of this schema."""
    if schema is None:
        return [FormInput(WHOLE, "Value", InputKind.JSON, hint="JSON")]
    whole = _resolved(schema, schema)
    fields = whole.get("properties")
    if not isinstance(fields, dict) or not fields:
        return [_input(WHOLE, "Value", whole, schema, required=True)]
    required = whole.get("required", ())
    return [
        _input(PREFIX + name, name, one, schema, required=name in required)
        for name, one in fields.items()
    ]


def _input(
    name: str, label: str, schema: Mapping[str, Any], root: Mapping[str, Any], *, required: bool
) -> FormInput:
    found = _resolved(schema, root)
    default = "" if found.get("default") is None else _text(found["default"])
    choices = _choices(found)
    kind = InputKind.CHOICE if choices else _KINDS.get(found.get("type", ""), InputKind.JSON)
    if choices:
        default = json.dumps(found.get("default")) if default else ""
    hint = str(found.get("description", "")) or ("JSON" if kind is InputKind.JSON else "")
    title = str(found.get("title", "")) or label
    shown = label if name == WHOLE else title
    return FormInput(name, shown, kind, required and not default, choices, default, hint)


_KINDS = {"string": InputKind.TEXT, "integer": InputKind.INTEGER, "number": InputKind.NUMBER}


def _choices(schema: Mapping[str, Any]) -> tuple[Choice, ...]:
    if schema.get("type") == "boolean":
        return Choice("Yes", "true"), Choice("No", "false")
    values = schema.get("enum")
    if isinstance(values, list):
        return tuple(Choice(_text(value), json.dumps(value)) for value in values)
    return ()


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _resolved(schema: Any, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema that a reference names; for `X | None`, that of X."""
    found = schema if isinstance(schema, dict) else {}
    reference = str(found.get("$ref", ""))
    if reference.startswith("#/$defs/"):
        target = root.get("$defs", {}).get(reference.removeprefix("#/$defs/"), {})
        return {**target, **{name: found[name] for name in found if name != "$ref"}}
    options = [one for one in found.get("anyOf", ()) if one.get("type") != "null"]
    if len(options) == 1:
        outer = {name: found[name] for name in found if name != "anyOf"}
        return {**_resolved(options[0], root), **outer}
    return found


def submitted_value(
    signal: str,
    schema: Mapping[str, Any] | None,
    buttons: Sequence[Choice],
    submitted: Mapping[str, str],
) -> str:
    """The JSON text of the pressed button's value, or of the form."""
    if not buttons:
        return write_signal(signal, read_form(signal, schema, submitted))
    number = submitted.get("choice", "0" if len(buttons) == 1 else "")
    if not number.isdecimal() or len(number) > 3 or int(number) >= len(buttons):
        raise InvalidSignal(signal, [Problem("", "choose one of the buttons")])
    return buttons[int(number)].value


def read_form(
    signal: str, schema: Mapping[str, Any] | None, submitted: Mapping[str, str]
) -> object:
    """The value of a submitted form; raises with every problem. Its type is checked elsewhere."""
    value: dict[str, object] = {}
    problems: list[Problem] = []
    for one in form_inputs(schema):
        name, text = one.name.removeprefix(PREFIX), submitted.get(one.name, "").strip()
        if text:
            try:
                value[name] = _parsed(one, text)
            except (ValueError, RecursionError):
                problems.append(Problem(name, f"must be {_EXPECTED[one.kind]}, not {text!r:.80}"))
        elif one.required:
            problems.append(Problem(name, "is required"))
    if problems:
        raise InvalidSignal(signal, problems)
    return value.get(WHOLE) if form_inputs(schema)[0].name == WHOLE else value


def _parsed(one: FormInput, text: str) -> object:
    from .strict_json import read

    match one.kind:
        case InputKind.TEXT:
            return text
        case InputKind.INTEGER:
            return int(text)
        case InputKind.CHOICE:
            if text not in [choice.value for choice in one.choices]:
                raise ValueError(text)
    parsed = read(text)
    if one.kind is InputKind.NUMBER and not isinstance(parsed, int | float):
        raise ValueError(text)
    return parsed


_EXPECTED = {
    InputKind.CHOICE: "one of the choices",
    InputKind.TEXT: "text",
    InputKind.INTEGER: "a whole number",
    InputKind.NUMBER: "a number",
    InputKind.JSON: "JSON",
}
