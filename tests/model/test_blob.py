"""What refers to a blob, and what only looks like it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.model.arguments import Arguments, encode_result
from outlast.model.blob import (
    REFERENCE_PREFIX,
    REFERENCE_TAG,
    Blob,
    args_blob,
    escape_reference,
    parse_name,
    parse_reference,
    result_blob,
    same_text,
)
from outlast.model.ids import new_job_id
from outlast.model.job import read_args, read_result
from tests.support.properties import at_any_speed

PLACE = "0123456789abcdef"
REFERENCE = args_blob(PLACE, b"x" * 2_000_000).as_text()

words = st.sampled_from([REFERENCE_TAG, REFERENCE_PREFIX, PLACE, "args-00000000", "", "é", "["])
values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | words,
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(words, inner),
    max_leaves=20,
)
lookalikes = st.one_of(
    values,
    st.lists(values, max_size=5).map(lambda rest: [REFERENCE_TAG, *rest]),
    st.just(json.loads(REFERENCE)),
)


@at_any_speed
@given(lookalikes)
def test_a_result_that_looks_like_a_reference_comes_back_equal(value: Any) -> None:
    """R168: whatever a handler gives, a reference to a blob included, is what it gave."""
    text = encode_result(value)
    assert parse_reference(text) is None
    assert read_result(text) == value


@at_any_speed
@given(lookalikes)
def test_so_do_arguments(value: Any) -> None:
    """R168: a call is an object, whatever it holds."""

    def task(**more: Any) -> None: ...

    arguments = Arguments(task, "task")
    text = arguments.encode((), {REFERENCE_TAG: value, "n": 1})
    assert parse_reference(text) is None
    assert read_args(text) == {REFERENCE_TAG: value, "n": 1} == arguments.decode(text)


def test_a_reference_is_read_as_it_was_written() -> None:
    """R168: and is small; a name follows from the job's id, and is the only form of a name."""
    id = new_job_id()
    for blob in (args_blob(PLACE, b"data"), result_blob(PLACE, 2**62, b"data")):
        text = blob.as_text()
        assert len(text) < 200 and text.startswith(REFERENCE_PREFIX)
        again = parse_reference(text)
        assert again == blob == read_args(text) == read_result(text)
        assert again is not None and parse_name(again.name(id)) == (PLACE, id, blob.part)
        assert blob.holds(b"data") and not blob.holds(b"dato") and not blob.holds(b"datas")
    assert args_blob(PLACE, b"data").part != args_blob(PLACE, b"data").part, "put once, never again"


@pytest.mark.parametrize("part", ["../../etc/passwd", "args-0000000", "args-00000000/x", "\n", ""])
def test_no_path_can_be_smuggled_in_by_a_row(part: str) -> None:
    """R168, R138: what is not of our own making refers to nothing, and is no name."""
    assert parse_reference(Blob(1, "0" * 64, PLACE, part).as_text()) is None
    assert parse_reference(Blob(1, "0" * 64, f"../{PLACE}", "args-00000000").as_text()) is None
    assert parse_name(f"{PLACE}/{new_job_id()}.{part}") is None


def test_two_texts_are_one_however_they_are_kept() -> None:
    assert same_text('{"a":1}', '{"a":1}') and not same_text('{"a":1}', '{"a":2}')
    kept = args_blob(PLACE, b'{"a":1}').as_text()
    assert same_text(kept, '{"a":1}') and same_text('{"a":1}', kept) and same_text(kept, kept)
    assert not same_text(kept, '{"a":2}')


def test_what_is_ours_means_the_same() -> None:
    assert (
        json.loads(escape_reference(REFERENCE)) == json.loads(REFERENCE)
        and parse_reference(escape_reference(REFERENCE)) is None
    )
    assert escape_reference('{"a":1}') == '{"a":1}'
