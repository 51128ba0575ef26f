"""What cannot be stored is refused at once, by a typed error that names every problem."""

from __future__ import annotations

import collections
import itertools
import json
import re
import unittest.mock
import uuid
from datetime import datetime
from decimal import Decimal
from time import monotonic
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator, BaseModel, PlainSerializer

from outlast.model.arguments import MAX_PAYLOAD, Arguments, encode_result
from outlast.model.arguments.jsontext import write_result
from outlast.model.errors import InvalidArguments, InvalidResult
from tests.model.samples import (
    INFINITY,
    NAN,
    Colour,
    Hostile,
    HostileDict,
    HostileList,
    Item,
    Order,
    Point,
    nested,
    order,
    problems,
    taking,
    untyped,
)


def shopping(items: list[Item], *, buyer: str, limit: float = 1.0) -> None: ...
def open_ended(doc: int, **more: Any) -> None: ...


def test_every_misfit_is_named_in_one_error() -> None:
    """R005: all issues at once, whatever their kind."""
    found = problems(shopping, [], 2, items=[], buyr="x\ud800", limit="much")
    assert found.keys() == {"[1]", "items", "buyer", "buyr", "limit"}
    assert found["buyer"] == "is missing"
    assert "given twice" in found["items"]
    assert "task takes items, buyer, limit" in found["buyr"]


def test_problems_that_different_steps_find_are_named_together() -> None:
    """R005: unstorable, of the wrong type, or changed by JSON: one error names them all."""
    items = [Item(Decimal(1)), Item(Decimal(1), "a\0"), Item("ten"), Item(Decimal("Infinity"))]  # type: ignore[arg-type]
    found = problems(shopping, items, buyer=7, limit=NAN)
    assert found.keys() == {"items[1].name", "items[2].price", "items[3].price", "buyer", "limit"}
    found = problems(untyped, {"a": (1,), "b": [{"c d": "\0"}], "e": {2: 3}})
    assert found.keys() == {"value.a", "value.b[0]['c d']", "value.e[2]"}


def test_many_problems_make_a_readable_error() -> None:
    for numbers in (["x"] * 50_000, [NAN] * 50_000, [()] * 50_000):
        with pytest.raises(InvalidArguments) as caught:
            Arguments(taking(list[int]), "task").encode((numbers,), {})
        assert len(caught.value.problems) == 101
        assert caught.value.problems[0].path == "value[0]"


def test_what_is_left_out_is_not_stored() -> None:
    """So that the default of a later release applies."""
    arguments = Arguments(shopping, "task")
    assert arguments.encode(([],), {"buyer": "me"}) == '{"items":[],"buyer":"me"}'
    assert arguments.decode('{"items":[],"buyer":"me"}') == {"items": [], "buyer": "me"}


def test_one_call_written_in_two_ways_is_one_text() -> None:
    arguments = Arguments(open_ended, "task")
    by_position = arguments.encode((1,), {"b": 2, "a": "é"})
    by_name = arguments.encode((), {"a": "é", "b": 2, "doc": 1})
    assert by_position == by_name == '{"doc":1,"a":"é","b":2}'


def test_further_keywords_are_json_values_or_of_their_type() -> None:
    def numbers(**more: int) -> None: ...

    assert problems(open_ended, 1, a=b"", b=(1,), c=1).keys() == {"a", "b"}
    assert problems(numbers, a=1, b="2").keys() == {"b"}


def test_a_task_may_take_nothing() -> None:
    arguments = Arguments(lambda: None, "task")
    assert arguments.decode(arguments.encode((), {})) == {}


@pytest.mark.parametrize("place", ["bare", "list", "dict", "dataclass", "model"])
@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "bytes cannot be JSON"),
        (bytearray(b"x"), "bytearray cannot be JSON"),
        (memoryview(b"x"), "memoryview cannot be JSON"),
        (NAN, "nan is not a JSON number"),
        (-INFINITY, "-inf is not a JSON number"),
        (Decimal("sNaN"), "sNaN is not a JSON number"),
        (Decimal("-Infinity"), "-Infinity is not a JSON number"),
        ("a\0b", r"contains U\+0000 at position 1"),
        ("\ud83d", r"the lone surrogate U\+D83D"),
        (10**4300, "more than 4,300 digits"),
        (-(10**5000), "more than 4,300 digits"),
        ((1, 2), r"tuple would come back as list, \[1, 2\]"),
        ({1}, "set would come back as list"),
        (Point(1, datetime(2026, 1, 1)), "Point would come back as list"),
        # pydantic before 2.14 writes none
        (collections.deque([1]), "deque (would come back as list|cannot be JSON)"),
        (datetime(2026, 1, 1), "datetime would come back as str"),
        (uuid.UUID(int=7), "UUID would come back as str"),
        (Decimal("1.5"), "Decimal would come back as str, '1.5'"),
        (Colour.RED, "Colour would come back as str"),
        (Item(Decimal(1)), "Item would come back as dict"),
        (order(1), "Order would come back as dict"),
        (object(), "object cannot be JSON"),
        (open, "cannot be JSON"),
        (range(3), "range cannot be JSON"),
        (unittest.mock.ANY, "cannot be JSON"),
        (Hostile(), "Hostile cannot be JSON"),
        (HostileList([1]), r"cannot be read: .*Raised: no\\x00"),
        (HostileDict(a=1), "cannot be read: .*Raised"),
        (itertools.count(), "can be read only once"),
        ((n for n in itertools.repeat(1)), "can be read only once"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_would_not_come_back_is_refused_by_its_path(
    value: Any, reason: str, place: str
) -> None:
    """R006: an immediate error that names the place, also deep inside."""
    function, given, path = {
        "bare": (untyped, value, "value"),
        "list": (taking(list[Any]), [1, [value]], "value[1][0]"),
        "dict": (untyped, {"a": {"b-c": value}}, "value.a['b-c']"),
        "dataclass": (taking(list[Item]), [Item(Decimal(1), note=value)], "value[0].note"),
        "model": (taking(Order), order(1, note=[value]), "value.note[0]"),
    }[place]
    found = problems(function, given)
    assert found.keys() == {path}
    assert re.search(reason, found[path])


@pytest.mark.parametrize(
    ("annotation", "value", "path"),
    [
        (int, "7", "value"),
        (int, True, "value"),
        (int, 7.0, "value"),
        (str, 7, "value"),
        (float, "7", "value"),
        (float, 2**53 + 1, "value"),
        (bool, 1, "value"),
        (datetime, "2026-01-01T00:00:00", "value"),
        (uuid.UUID, "00000000-0000-0000-0000-000000000007", "value"),
        (Decimal, 0.5, "value"),
        (Colour, "red", "value"),
        (list[int], (1,), "value"),
        (tuple[int, ...], [1], "value"),
        (list[int], [1, "2"], "value[1]"),
        (list[Item], [Item(Decimal(1)), {"price": "1"}], "value[1]"),
        (dict[str, list[int]], {"a": [1], "b": [1, None]}, "value.b[1]"),
        (dict[bytes, int], {b"x": 1}, "value[b'x']"),
        (bytes, b"text", "value"),
        (dict[tuple[int, int], int], {(1, 2): 3}, "value"),
        (int | str, 1.5, "value"),
        (dict[str, int] | list[int], {"a": "1"}, "value.a"),
        (Order, {"in": 1}, "value"),
        (Order, Order.model_construct(number="x"), "value.number"),
    ],
)
def test_a_value_of_another_type_is_refused(annotation: Any, value: Any, path: str) -> None:
    """R005: nothing is converted on the quiet, as it would come back as something else."""
    assert path in problems(taking(annotation), value)


@pytest.mark.parametrize("key", ["k\0", "\udfff", 1, None, 1.5, (1, 2), True, b"k", Colour.RED])
def test_a_key_that_is_not_text_is_refused(key: Any) -> None:
    """R006: json.dumps would make text of it, and nobody would notice."""
    (path,) = problems(untyped, {"good": 1, "inner": {key: 2}})
    assert path.startswith("value.inner[")


def test_a_structure_without_end_is_refused() -> None:
    """R006: a cycle, a tower and a bomb are problems, never a RecursionError or a hang."""
    cycle: list[Any] = [1]
    cycle.append({"again": [cycle] * 10})
    assert "contains itself" in problems(untyped, cycle)["value[1].again[0]"]
    assert any("100 levels" in message for message in problems(untyped, nested(101)).values())
    assert any("100 levels" in message for message in problems(untyped, nested(20_000)).values())
    bomb: list[Any] = []
    for _ in range(80):
        bomb = [bomb, bomb]
    started = monotonic()
    assert "far more than 1,000,000" in problems(untyped, bomb)[""]
    assert monotonic() - started < 60


def test_a_tree_of_models_may_be_as_deep_as_lists() -> None:
    class Node(BaseModel):
        kids: list[Node] = []

    Node.model_rebuild(_types_namespace={"Node": Node})
    arguments = Arguments(taking(Node), "task")
    tree = Node()
    for _ in range(49):
        tree = Node(kids=[tree])
    assert arguments.decode(arguments.encode((tree,), {})) == {"value": tree}
    tree.kids.append(tree)
    assert "contains itself" in problems(taking(Node), tree)["value.kids[1]"]


def test_a_payload_has_a_size_limit() -> None:
    """R006: said in bytes of UTF-8."""
    arguments = Arguments(untyped, "task")
    room = MAX_PAYLOAD - len('{"value":""}')
    assert len(arguments.encode(("é" * (room // 2),), {}).encode()) <= MAX_PAYLOAD
    assert len(arguments.encode(("x" * room,), {})) == MAX_PAYLOAD
    assert problems(untyped, "x" * (room + 1)) == {
        "": "the arguments take 1,000,001 bytes, more than 1,000,000: "
        "store the data elsewhere and pass its key, or have Outlast do so (blobs=…)"
    }
    assert "far more" in problems(untyped, ["x" * 1_000_000] * 1_000)[""]


def refuse(value: Any) -> Any:
    raise Hostile.Raised("never")


def explain(value: Any) -> Any:
    raise ValueError("too \ud800 odd")


def test_whatever_a_hook_raises_becomes_a_problem_at_its_place() -> None:
    """R006: validators, serialisers and properties belong to the user."""

    def task(
        a: Annotated[int, AfterValidator(refuse)],
        b: list[Annotated[int, AfterValidator(explain)]],
        c: Annotated[int, PlainSerializer(refuse)],
        d: Annotated[str, PlainSerializer(lambda _: "\0")],
        e: Annotated[float, PlainSerializer(lambda _: NAN)],
    ) -> None: ...

    found = problems(task, 1, [2], 3, "4", 5.0)
    assert {path.split("[")[0] for path in found} == {"a", "b", "c", "d", "e"}
    assert "Raised: never" in found["a"]
    assert json.dumps(found, ensure_ascii=False).encode()


@pytest.mark.parametrize("raised", [KeyboardInterrupt, SystemExit])
def test_only_the_wish_to_stop_passes_through(raised: type[BaseException]) -> None:
    def stop(value: Any) -> Any:
        raise raised

    arguments = Arguments(taking(Annotated[int, AfterValidator(stop)]), "task")
    with pytest.raises(raised):
        arguments.encode((1,), {})
    with pytest.raises(raised):
        arguments.decode('{"value":1}')


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("", {""}),
        ("nope", {""}),
        ("null", {""}),
        ("[1]", {""}),
        ("{}", {"items", "buyer"}),
        ('{"items":[{"price":"x"},{}],"buyer":1}', {"items[0].price", "items[1].price", "buyer"}),
        ('{"items":[],"buyer":"me","gone":1}', {"gone"}),
        ('{"items":[],"buyer":"\\ud800"}', {"buyer"}),
        ('{"items":' + "[" * 100_000 + "]" * 100_000 + ',"buyer":"me"}', {""}),
        ('{"items":[],"buyer":"me","limit":' + "1" * 5000 + "}", {""}),
    ],
)
def test_a_stored_text_that_does_not_fit_is_explained(text: str, paths: set[str]) -> None:
    """R013: damaged by hand, or written by another release: one clear error, nothing else."""
    with pytest.raises(InvalidArguments) as caught:
        Arguments(shopping, "task").decode(text)
    assert {problem.path for problem in caught.value.problems} == paths


def test_a_validator_that_raises_anything_cannot_break_reading() -> None:
    """R013."""
    arguments = Arguments(taking(Annotated[int, AfterValidator(refuse)]), "task")
    with pytest.raises(InvalidArguments, match="value: its validation raised"):
        arguments.decode('{"value":1}')


@pytest.mark.parametrize(
    ("value", "annotation", "text"),
    [
        (None, Any, None),
        (None, int, None),
        ({"a": [1, None, "é"]}, dict, '{"a":[1,null,"é"]}'),
        ((1, {2}), Any, "[1,[2]]"),
        ({1: "a"}, dict[int, str], '{"1":"a"}'),
        (Item(Decimal("1.5")), Item, '{"price":"1.5","name":"pen","note":null,"parts":null}'),
        (datetime(2026, 1, 1), "unknown", '"2026-01-01T00:00:00"'),
        (7, Hostile, "7"),
        ("seven", int, '"seven"'),
    ],
)
def test_a_result_is_stored_as_json(value: Any, annotation: Any, text: str | None) -> None:
    assert encode_result(value, annotation) == text


@pytest.mark.parametrize(
    "annotation", [Any, int, bool, float, str, Annotated[int, PlainSerializer(str)]]
)
@pytest.mark.parametrize("value", [0, -1, 2**63 - 1, -(2**63), 10**30, True, False])
def test_plain_results_are_stored_as_the_serialiser_would(value: int, annotation: Any) -> None:
    assert encode_result(value, annotation) == write_result(value, annotation)


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"a": [1, NAN]}, "a[1]"),
        ([b""], "[0]"),
        ("\0", ""),
        ({"k\0": 1}, "['k\\x00']"),
        (object(), ""),
        (Item(Decimal(1), note=[Hostile()]), "note[0]"),
        ("x" * MAX_PAYLOAD, ""),
        (itertools.count(), ""),
    ],
)
def test_a_result_that_cannot_be_stored_is_refused_by_its_path(value: Any, path: str) -> None:
    """R006: before the finish, never inside it."""
    with pytest.raises(InvalidResult) as caught:
        encode_result(value)
    assert [problem.path for problem in caught.value.problems] == [path]
