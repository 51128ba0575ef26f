"""What is accepted comes back equal, in text that both databases can read."""

from __future__ import annotations

import collections
import json
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any, Literal
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import VERSION as PYDANTIC
from pydantic import BaseModel, SecretStr

from outlast.model.arguments import MAX_PAYLOAD, Arguments
from outlast.model.errors import InvalidArguments
from tests.model.samples import (
    INFINITY,
    NAN,
    Address,
    Colour,
    Item,
    Order,
    Point,
    Rights,
    Size,
    nested,
    order,
    problems,
    taking,
    untyped,
)
from tests.support import Database

NOON = datetime(2026, 1, 2, 12, 0, 0, 123456)
NEW_YORK, LONDON = ZoneInfo("America/New_York"), ZoneInfo("Europe/London")


# Earlier versions refuse them when they are enqueued.
NOT_BEFORE_PYDANTIC_2_14_3 = [
    (int, -(10**4300) + 1),
    (collections.deque[int], collections.deque([1])),
]
PYDANTIC_VERSION = tuple(int(number) for number in re.findall(r"\d+", PYDANTIC)[:3])


@dataclass(eq=False)
class WithoutEquality:
    number: int


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (int, Size.LARGE),
        (float, 5e-324),
        (float, 3),
        (str, "é \\u0000 NaN \U0001f600 \uffff \x7f"),
        (bool, True),
        (None, None),
        (datetime, NOON),
        (datetime, NOON.replace(tzinfo=UTC)),
        (datetime, NOON.replace(tzinfo=timezone(timedelta(hours=-3, minutes=-30)))),
        (datetime, datetime.min),
        (datetime, datetime.max),
        (date, date.min),
        (time, time(1, 2, 3, 4)),
        (timedelta, timedelta(days=-3, microseconds=1)),
        (uuid.UUID, uuid.UUID(int=7)),
        (Decimal, Decimal("-1.50E+400")),
        (Colour, Colour.TWO),
        (Rights, Rights.READ | Rights.WRITE),
        (Literal["a", 1], 1),
        (Point, Point(1, NOON)),
        (Address, {"street": "High", "since": NOON.date()}),
        (Item, Item(Decimal("1.10"), parts=[Item(Decimal(2))])),
        (Order, order(1, when=NOON, ratio=-0.0, note={"a": [None]})),
        (list[Order] | None, [order(1)]),
        (int | str | None, "1"),
        (datetime | date, NOON.date()),
        (dict[str, Any], {"": {"a.b": [True, 1, 1.0]}}),
        (dict[int, Item], {-1: Item(Decimal(1))}),
        (dict[date, Decimal], {NOON.date(): Decimal(1)}),
        (dict[Colour, int], {Colour.RED: 1}),
        (set[uuid.UUID], {uuid.UUID(int=7), uuid.UUID(int=8)}),
        (frozenset[tuple[int, str]], frozenset({(1, "a")})),
        (tuple[int, Colour, list[Point]], (1, Colour.RED, [Point(2, NOON)])),
        (Sequence[int], [1]),
        (Mapping[str, int], {"a": 1}),
        (Path, Path("/tmp/x")),
        (IPv4Address, IPv4Address("10.0.0.1")),
        (Any, nested(100)),
        (Any, collections.OrderedDict(a=Size.SMALL)),
        (Any, [-0.0, 1e300, 2**64, "\u2028", {}, []]),
        *(NOT_BEFORE_PYDANTIC_2_14_3 if PYDANTIC_VERSION >= (2, 14, 3) else ()),
    ],
    ids=lambda value: str(value)[:40].encode("ascii", "replace").decode(),
)
def test_a_value_of_the_annotated_type_comes_back_equal(annotation: Any, value: Any) -> None:
    """R006: an exact round trip."""
    arguments = Arguments(taking(annotation), "task")
    text = arguments.encode((value,), {})
    back = arguments.decode(text)["value"]
    assert back == value


@pytest.mark.parametrize(("month", "day", "hour"), [(11, 3, 1), (3, 10, 2)])
@pytest.mark.parametrize("fold", [0, 1])
def test_the_hour_when_clocks_change_is_no_exception(
    month: int, day: int, hour: int, fold: int
) -> None:
    """R006: Python never finds such a moment equal to one in another zone; it is stored anyway."""
    arguments = Arguments(taking(list[Item] | datetime), "task")
    moment = datetime(2024, month, day, hour, 30, fold=fold, tzinfo=NEW_YORK)
    back = arguments.decode(arguments.encode((moment,), {}))["value"]
    assert back.astimezone(UTC) == moment.astimezone(UTC)


def test_a_class_without_equality_is_compared_by_its_fields() -> None:
    arguments = Arguments(taking(list[WithoutEquality]), "task")
    (back,) = arguments.decode(arguments.encode(([WithoutEquality(7)],), {}))["value"]
    assert back.number == 7
    assert "value[0].number" in problems(taking(list[WithoutEquality]), [WithoutEquality("7")])  # type: ignore[arg-type]


class Cat(BaseModel):
    name: str


class Dog(BaseModel):
    name: str


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (Cat | Dog, Dog(name="Rex")),
        (SecretStr, SecretStr("hush")),
        (datetime, NOON.replace(tzinfo=timezone(timedelta(seconds=1172)))),
        (dict[int | str, int], {1: 1}),
        (dict[Colour, int], {Colour.TWO: 1}),
        (Literal[Colour.RED], Colour.RED),
        (Sequence[int], (1,)),
    ],
)
def test_what_json_cannot_tell_apart_is_refused(annotation: Any, value: Any) -> None:
    """R006: it would come back as something else, or not at all."""
    assert all(path.startswith("value") for path in problems(taking(annotation), value))


def test_both_databases_read_the_text(database: Database) -> None:
    """R006: by their JSON functions too, so that nothing fails inside a claim or a barrier."""
    value = {"é\U0001f600": ["\x01\x7f\\u0000\"'", -0.0, 1e300, 10**4299, nested(90)], "": None}
    text = Arguments(untyped, "task").encode((value,), {})
    if database.is_sqlite:
        query = "SELECT json(?), json_extract(?, '$.value')"
    else:
        query = """SELECT args::text, (%s::json -> 'value')::text
                   FROM json_to_recordset(json_build_array(json_build_object('args', %s::json)))
                   AS row (args json)"""
    ((whole, part),) = database.rows(query, (text, text))
    assert json.loads(whole) == {"value": value}
    assert json.loads(part) == value


def for_all(
    *values: st.SearchStrategy[Any], examples: int
) -> Callable[[Callable[..., None]], Callable[[int], None]]:
    """A test of a property: of a fifth of the examples always, of all of them in a campaign."""

    def test_of(promise: Callable[..., None]) -> Callable[[int], None]:
        @pytest.mark.parametrize(
            "number",
            [
                pytest.param(examples // 5, id="sample"),
                pytest.param(examples, id="full", marks=pytest.mark.campaign),
            ],
        )
        def test(number: int) -> None:
            always = settings(
                max_examples=number,
                deadline=None,
                database=None,
                suppress_health_check=list(HealthCheck),
            )
            always(given(*values)(promise))()

        test.__name__, test.__doc__ = promise.__name__, promise.__doc__
        return test

    return test_of


def check(arguments: Arguments, *args: Any, **kwargs: Any) -> None:
    """The promise itself: refused with problems that have a place, or equal after the trip."""
    try:
        text = arguments.encode(args, kwargs)
    except InvalidArguments as error:
        assert error.problems
        assert all(problem.path and problem.message for problem in error.problems)
        assert str(error).encode() and "\0" not in str(error)
        return
    assert len(text.encode()) <= MAX_PAYLOAD
    assert json.loads(text, parse_constant=pytest.fail) is not None
    back = arguments.decode(text)
    assert back == (kwargs or {"value": args[0]})
    assert arguments.decode(arguments.encode((), back)) == back


any_text = st.text(st.characters(codec=None), max_size=4)
good_text = st.text(max_size=4)
numbers = st.one_of(st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.booleans())
hostile = st.one_of(
    any_text,
    st.sampled_from([NAN, INFINITY, -INFINITY, b"", b"x", (), (1,), frozenset()]),
    st.integers(4290, 4310).map(lambda digits: 10**digits),
    st.sampled_from([Size.SMALL, Colour.RED, object(), Decimal("NaN"), Decimal(1), NOON, 1j]),
)


def json_like(leaves: st.SearchStrategy[Any], keys: st.SearchStrategy[Any]) -> Any:
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
        max_leaves=5,
    )


plain_values = json_like(st.one_of(st.none(), numbers, good_text), good_text)
wild_values = json_like(
    st.one_of(st.none(), numbers, hostile), st.one_of(any_text, st.integers(), st.none())
)
PLACES: list[tuple[Arguments, Callable[[Any], Any]]] = [
    (Arguments(untyped, "task"), lambda value: value),
    (Arguments(untyped, "task"), lambda value: [{"é": [value]}, value]),
    (Arguments(taking(dict[str, Any]), "task"), lambda value: {"a b": value}),
    (Arguments(taking(tuple[Any, ...]), "task"), lambda value: (1, value)),
    (Arguments(taking(list[Item]), "task"), lambda value: [Item(Decimal(1), note=value)]),
    (Arguments(taking(Order), "task"), lambda value: order(1, note={"deep": value})),
]


@for_all(plain_values, examples=1_000)
def test_any_json_value_comes_back_equal(value: Any) -> None:
    """R006: 1,000 values in six places; only a NUL may be refused."""
    has_nul = "\\u0000" in json.dumps(value).replace("\\\\", "")
    for arguments, place in PLACES:
        if has_nul:
            check(arguments, place(value))
        else:
            text = arguments.encode((place(value),), {})
            assert arguments.decode(text) == {"value": place(value)}


@for_all(wild_values, examples=1_700)
def test_any_value_at_all_is_refused_or_comes_back_equal(value: Any) -> None:
    """R006: 1,700 values in six places, with NULs, surrogates, NaN, bytes, tuples and objects."""
    for arguments, place in PLACES:
        check(arguments, place(value))


def is_one_moment(when: datetime) -> bool:
    """Not in the hour when clocks change: Python finds that one equal to nothing."""
    return when.replace(fold=0).utcoffset() == when.replace(fold=1).utcoffset()


zones = st.sampled_from([None, UTC, timezone(timedelta(hours=5, minutes=45)), NEW_YORK, LONDON])
moments = st.datetimes(datetime(1900, 1, 1), timezones=zones).filter(is_one_moment)
finite = {"allow_nan": False, "allow_infinity": False}
decimals = st.decimals(**finite)
items = st.builds(Item, price=decimals, name=good_text, note=st.none() | numbers)
orders = st.builds(
    order, st.integers(), when=st.none() | moments, ratio=st.none() | st.floats(**finite)
)
wrong_items = st.builds(Item, price=st.decimals() | numbers, name=any_text, note=hostile)
wrong_orders = st.builds(order, st.integers(), ratio=st.floats(), note=hostile)


def everything(
    item: Item,
    when: datetime,
    *,
    key: uuid.UUID | None = None,
    amount: Decimal = Decimal(0),
    colours: dict[str, set[Colour]] | None = None,
    orders: tuple[Order, ...] = (),
    place: Point | None = None,
    ids: frozenset[int | str] = frozenset(),
    span: timedelta | date | None = None,
    number: int | float | None = None,
) -> None: ...


EVERYTHING = Arguments(everything, "task")


@for_all(
    st.fixed_dictionaries(
        {"item": items, "when": moments},
        optional={
            "key": st.uuids() | st.none(),
            "amount": decimals,
            "colours": st.dictionaries(
                good_text, st.sets(st.sampled_from(Colour), max_size=2), max_size=2
            ),
            "orders": st.lists(orders, max_size=2).map(tuple),
            "place": st.builds(Point, st.integers(), moments),
            "ids": st.frozensets(st.integers() | good_text, max_size=3),
            "span": st.timedeltas() | st.dates(),
            "number": st.integers() | st.floats(**finite),
        },
    ),
    examples=1_200,
)
def test_typed_arguments_are_refused_or_come_back_equal(kwargs: dict[str, Any]) -> None:
    """R006: 1,200 calls with every kind of type, nearly all right."""
    check(EVERYTHING, **kwargs)


@for_all(
    st.dictionaries(
        st.sampled_from(["item", "when", "key", "amount", "orders", "number", "other"]),
        st.one_of(wrong_items, moments, decimals, wrong_orders.map(lambda one: (one,)), hostile),
        max_size=5,
    ),
    examples=1_000,
)
def test_arguments_that_do_not_fit_are_refused_or_come_back_equal(kwargs: dict[str, Any]) -> None:
    """R005, R006: 1,000 calls whose names and types are mixed up."""
    check(EVERYTHING, **kwargs)


class Numbers(BaseModel):
    exact: int
    real: float
    either: int | float
    text: str | int


NUMBERS = Arguments(taking(Numbers), "task")


@for_all(numbers, numbers, numbers, numbers | good_text, examples=2_000)
def test_numbers_keep_their_value(a: Any, b: Any, c: Any, d: Any) -> None:
    """R006: 2,000 times -0.0, 2**53 + 1, True or 1.0 in a model that nobody validated."""
    model = Numbers.model_construct(exact=a, real=b, either=c, text=d)
    check(NUMBERS, model)
