"""Description of a bridge for tables, without secrets."""

from __future__ import annotations


def description(bridge: object) -> str:
    """The `__repr__` that a bridge's author wrote, else the name of its class: a generated
    `__repr__` shows all fields, including passwords."""
    kind = type(bridge)
    shown = kind.__repr__
    generated = hasattr(shown, "__wrapped__") and hasattr(kind, "__dataclass_fields__")
    return kind.__name__ if shown is object.__repr__ or generated else repr(bridge)
