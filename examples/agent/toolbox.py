"""The tools that the model may call. Each takes a key, by which the shop takes a repeated call for
one; the model does not see it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import shop


def look_up_order(order: int, *, key: str) -> str:
    return f"order {order}: one lamp, 4200 cents, delivered on Monday"


def refund(order: int, cents: int, *, key: str) -> str:
    shop.take_effect(key, "refund", f"{cents} cents for order {order}")
    return "refunded"


def write_to_customer(text: str, *, key: str) -> str:
    shop.send_mail(key=key, to="customer", text=text)
    return "sent"


TOOLS: dict[str, Callable[..., str]] = {
    "look_up_order": look_up_order,
    "refund": refund,
    "write_to_customer": write_to_customer,
}
NEED_APPROVAL = {"refund"}


def specification(name: str, description: str, **fields: str) -> Any:
    """A tool, as the model is told of it: its fields are strings or integers."""
    properties = {field: {"type": type} for field, type in fields.items()}
    parameters = {"type": "object", "properties": properties, "required": list(fields)}
    function = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": function}


SPECIFICATIONS = [
    specification("look_up_order", "Read an order.", order="integer"),
    specification("refund", "Pay money back.", order="integer", cents="integer"),
    specification("write_to_customer", "Send a mail to the customer.", text="string"),
]
