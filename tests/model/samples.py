"""Types and values that tasks are called with in these tests."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any, NamedTuple

import pytest
from pydantic import BaseModel, ConfigDict, Field, computed_field
from typing_extensions import TypedDict

from outlast.model.arguments import Arguments
from outlast.model.errors import InvalidArguments

NAN, INFINITY = float("nan"), float("inf")


class Colour(enum.Enum):
    RED = "red"
    TWO = 2


class Size(enum.IntEnum):
    SMALL = 1
    LARGE = 2


class Rights(enum.IntFlag):
    READ = 1
    WRITE = 2


@dataclass
class Item:
    price: Decimal
    name: str = "pen"
    note: Any = None
    parts: list[Item] | None = None


class Point(NamedTuple):
    x: int
    at: datetime


class Address(TypedDict):
    street: str
    since: date


class Order(BaseModel):
    """A model with what usually breaks a round trip: two aliases and a computed field."""

    model_config = ConfigDict(extra="forbid")
    number: int = Field(validation_alias="in", serialization_alias="out")
    when: datetime | None = None
    ratio: float | None = None
    note: Any = None

    @computed_field
    def double(self) -> int:
        return self.number * 2


def order(number: int, **fields: Any) -> Order:
    return Order(**{"in": number}, **fields)


class Hostile:
    """Its hooks raise what is not even an Exception."""

    class Raised(BaseException):
        pass

    def refuse(self, *_: object) -> Any:
        raise Hostile.Raised("no\0")

    __eq__ = __repr__ = __str__ = __iter__ = __len__ = __bool__ = refuse
    __hash__ = object.__hash__


class HostileList(list[Any]):
    __iter__ = Hostile.refuse


class HostileDict(dict[str, Any]):
    items = Hostile.refuse


def untyped(value):  # type: ignore[no-untyped-def]
    """A task that says nothing about its argument."""


def taking(annotation: Any) -> Callable[..., None]:
    """A task with one argument of this type."""

    def function(value: Any) -> None: ...

    function.__annotations__["value"] = annotation
    return function


def problems(function: Callable[..., Any], *args: Any, **kwargs: Any) -> dict[str, str]:
    """What is wrong with a call, by path."""
    with pytest.raises(InvalidArguments) as caught:
        Arguments(function, "task").encode(args, kwargs)
    return {problem.path: problem.message for problem in caught.value.problems}


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth - 1):
        value = [value]
    return value
