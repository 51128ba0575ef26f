"""Values of signals as JSON text and back, checked against the type that the task declares."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ..errors import InvalidSignal, Problem
from ..options import check_name

MAX_SIGNAL_BYTES = 1024 * 1024  # of one value
MAX_SCHEMA_CHARS = 10_000


def write_signal(name: str, value: object) -> str:
    """The JSON text of a value; raises with every reason why there is none."""
    from .jsontext import oversized, writer_of
    from .storable import unstorable

    text, problems = b"", unstorable(value, limit=MAX_SIGNAL_BYTES)
    if not problems:
        text, problems = writer_of(Any).write_checked(value, "", MAX_SIGNAL_BYTES)
    problems = problems or oversized(text, "the value takes", MAX_SIGNAL_BYTES)
    if problems:
        raise InvalidSignal(name, problems)
    return text.decode()


def read_signal(name: str, text: str, annotation: Any) -> Any:
    """The value of a stored text; raises with every reason why it is not of this type."""
    value = json.loads(text)
    if annotation is Any:
        return value
    from .codec import read_value

    read, problems = read_value(value, annotation)
    if problems:
        raise InvalidSignal(name, problems)
    return read


def check_declared(task: str, declared: Mapping[str, object], name: str, text: str) -> None:
    """Refuse a signal that a task does not declare, and a value of another type. A task that
    declares none accepts all."""
    if declared:
        read_signal(name, text, _declared_type(task, declared, name))


def declared_form(task: str, declared: Mapping[str, object], name: str) -> dict[str, Any] | None:
    """The JSON schema of a signal that a task declares; None: it declares none."""
    return signal_schema(_declared_type(task, declared, name)) if declared else None


def _declared_type(task: str, declared: Mapping[str, object], name: str) -> Any:
    if name not in declared:
        listed = ", ".join(sorted(declared))
        raise InvalidSignal(name, [Problem("", f"{task} does not take it; it takes {listed}")])
    return declared[name]


def signal_schema(annotation: Any) -> dict[str, Any] | None:
    """The JSON schema of a type, for forms; None if it has none, or a huge one."""
    if annotation is Any:
        return None
    from .jsontext import type_adapter

    try:
        schema = type_adapter(annotation).json_schema(by_alias=False)
    except Exception:  # pydantic has no schema for some types: people write JSON then
        return None
    return schema if len(json.dumps(schema)) <= MAX_SCHEMA_CHARS else None


def check_declaration(signals: Any) -> Mapping[str, Any]:
    """`@ol.task(signals={"approval": Decision})`: names and types that pydantic knows."""
    from ..errors import InvalidOption

    if signals is None:
        return {}
    if not isinstance(signals, Mapping):
        reason = f'must map names to types, as in {{"approval": Decision}}, not {signals!r:.80}'
        raise InvalidOption(option="signals", reason=reason)
    for name in signals:
        check_name("signals", name)
    return dict(signals)
