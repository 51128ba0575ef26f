"""How a bridge is shown in tables: nothing that its author did not mean to show."""

from __future__ import annotations


def description(bridge: object) -> str:
    """A bridge by the `__repr__` that its author wrote, else by the name of its class: a generated
    one shows all fields, passwords included."""
    kind = type(bridge)
    shown = kind.__repr__
    generated = hasattr(shown, "__wrapped__") and hasattr(kind, "__dataclass_fields__")
    return kind.__name__ if shown is object.__repr__ or generated else repr(bridge)
