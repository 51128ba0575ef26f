"""Whatever an error says can be stored."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlast.model.safe_text import MESSAGE_LIMIT, TRACEBACK_LIMIT, error_record, storable_text
from tests.support.properties import at_any_speed


def fits(text: str, limit: int) -> bool:
    """A database takes it: UTF-8 without NUL, and not too long."""
    return "\0" not in text and len(text) <= limit and text.encode("utf-8").decode("utf-8") == text


def raised(error: BaseException) -> BaseException:
    """The error with a traceback."""
    try:
        raise error
    except BaseException as caught:
        return caught


def test_what_cannot_be_stored_is_made_visible() -> None:
    """R006: a NUL and a lone surrogate are readable in the error that is kept."""
    assert storable_text("a\0b", 100) == "a\\x00b"
    assert storable_text("a\ud83db", 100) == "a\\ud83db"
    assert storable_text("é \U0001f600", 100) == "é \U0001f600"


def test_a_long_text_keeps_its_head_and_its_tail() -> None:
    text = "head" + "x" * 100_000 + "tail"
    short = storable_text(text, 1_000)
    assert len(short) <= 1_000
    assert short.startswith("head")
    assert short.endswith("tail")
    assert "… (99,048 more characters) …" in short
    assert storable_text("x" * 1_000, 1_000) == "x" * 1_000


@settings(at_any_speed, max_examples=2_000, database=None)
@given(st.text(st.characters(codec=None), max_size=80), st.integers(0, 60))
def test_any_text_can_be_stored(text: str, limit: int) -> None:
    """R006."""
    assert fits(storable_text(text, limit), limit)


class Subclassed(str):
    def encode(self, *_: Any) -> bytes:
        raise RuntimeError

    replace = isascii = __str__ = __len__ = encode  # type: ignore[assignment]


def test_a_text_that_lies_about_itself_is_taken_as_it_is() -> None:
    assert storable_text(Subclassed("a\0"), 100) == "a\\x00"


def test_an_error_is_kept_with_its_type_message_and_traceback() -> None:
    told = error_record(raised(KeyError("doc")))
    assert told["type"] == "KeyError"
    assert told["message"] == "'doc'"
    assert "in raised" in told["traceback"]
    assert error_record(Local.Error("x"))["type"] == f"{__name__}.Local.Error"


class Local:
    class Error(Exception):
        pass

    class Mute(Exception):
        def __str__(self) -> str:
            raise SystemExit("never")

        __repr__ = __str__

    class Odd(Exception):
        def __str__(self) -> Any:
            return 7  # noqa: PLE0307

    class Causeless(Exception):
        @property
        def __cause__(self) -> Any:  # type: ignore[override]
            raise RuntimeError

    class Nameless(type):
        @property
        def __module__(cls) -> Any:  # type: ignore[override]
            raise RuntimeError

    class Faceless(Exception, metaclass=Nameless):
        pass


def chain(length: int) -> BaseException:
    error: BaseException = ValueError("first")
    for number in range(length):
        following = ValueError(f"number {number}")
        following.__cause__ = error
        error = following
    return raised(error)


def circle() -> BaseException:
    one, two = ValueError("one"), ValueError("two")
    one.__cause__, two.__cause__ = two, one
    return raised(one)


def endless_call() -> BaseException:
    def call() -> None:
        call()

    try:
        call()
    except RecursionError as error:
        return error
    raise AssertionError


def groups(depth: int) -> BaseException:
    error: Exception = ValueError("inner")
    for _ in range(depth):
        error = ExceptionGroup("group", [error] * 3)
    return raised(error)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (raised(Local.Mute()), "(no message: its __str__ raised SystemExit)"),
        (raised(Local.Odd()), "(no message: its __str__ raised TypeError)"),
        (raised(Local.Faceless("x")), "x"),
        (raised(Local.Causeless("x")), "x"),
        (raised(ValueError("\0\ud800")), "\\x00\\ud800"),
        (raised(ValueError(Subclassed("\0"))), "(no message: its __str__ raised RuntimeError)"),
        (raised(SyntaxError("bad", (7, "x", object(), 9))), None),  # type: ignore[arg-type]
        (raised(KeyboardInterrupt()), ""),
        (chain(3), "number 2"),
        (chain(100_000), "number 99999"),
        (circle(), "one"),
        (endless_call(), None),
        (groups(5), None),
        (groups(500), None),
        (raised(ExceptionGroup("wide", [ValueError(number) for number in range(5_000)])), None),
    ],
    ids=lambda value: type(value).__name__,
)
def test_describing_an_error_never_fails(error: BaseException, message: str | None) -> None:
    """R006: failing can never fail, whatever was raised."""
    told = error_record(error)
    assert told.keys() == {"type", "message", "traceback"}
    assert all(type(text) is str and fits(text, TRACEBACK_LIMIT) for text in told.values())
    assert message is None or told["message"] == message


def test_a_short_chain_is_told_and_a_long_one_is_not() -> None:
    assert "first" in error_record(chain(3))["traceback"]
    assert "two" in error_record(circle())["traceback"]
    assert "first" not in error_record(chain(1_000))["traceback"]


def test_a_huge_message_is_cut() -> None:
    told = error_record(raised(ValueError("x" * 10_000_000)))
    assert len(told["message"]) <= MESSAGE_LIMIT
    assert len(told["traceback"]) <= TRACEBACK_LIMIT
    assert told["traceback"].startswith("Traceback (most recent call last)")
