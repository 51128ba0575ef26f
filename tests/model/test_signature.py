"""Which functions can be tasks, and which of their parameters are stored."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Annotated, Any, Optional

import pytest

from outlast.model.arguments import Arguments
from outlast.model.errors import InvalidArguments, InvalidInput
from tests.model.samples import Hostile, problems

if TYPE_CHECKING:
    from nowhere import Nothing


class Context:
    """Stands for the worker's context, of which the model layer knows nothing."""


def positional_only(doc: int, /) -> None: ...
def any_number(*docs: int) -> None: ...
def only_for_checkers(doc: int, it: Nothing) -> None: ...
def returns_what_only_checkers_know(doc: int) -> Nothing: ...
def two_contexts(one: Context, two: Context | None = None) -> None: ...


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        (positional_only, "the parameter doc is positional-only"),
        (any_number, r"the parameter \*docs has no names"),
        (only_for_checkers, "the parameter it has an annotation .* not only under TYPE_CHECKING"),
        (two_contexts, "the parameter two is a second context beside one"),
        (Hostile.refuse, r"the parameter \*_ has no names"),
        (dict.fromkeys, "its parameters cannot be read|positional-only"),
    ],
)
def test_a_function_that_cannot_be_a_task_is_told_why(function: Any, sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        Arguments(function, "task", Context)


def test_an_unknown_return_type_does_no_harm() -> None:
    arguments = Arguments(returns_what_only_checkers_know, "task")
    assert arguments.returns is Any
    assert arguments.encode((1,), {}) == '{"doc":1}'


def with_context(ctx: Context, doc: int) -> None: ...
def with_optional(doc: int, ctx: Optional[Context] = None) -> None: ...  # noqa: UP045
def with_union(doc: int, *, ctx: Context | None) -> None: ...
def with_annotated(doc: int, ctx: Annotated[Context, "injected"]) -> None: ...
def with_more(doc: int, ctx: Context, **more: int) -> None: ...


@pytest.mark.parametrize(
    "task", [with_context, with_optional, with_union, with_annotated, with_more]
)
def test_the_context_is_filled_in_by_the_worker_and_never_stored(task: Any) -> None:
    arguments = Arguments(task, "task", Context)
    assert arguments.context_parameter == "ctx"
    assert arguments.encode((7,), {}) == '{"doc":7}'
    assert arguments.decode('{"doc":7}') == {"doc": 7}
    with pytest.raises(InvalidArguments, match="ctx: is filled in by the worker"):
        arguments.encode((7,), {"ctx": Context()})
    with pytest.raises(InvalidArguments, match="ctx"):
        arguments.decode('{"doc":7,"ctx":1}')


def test_a_task_without_context_has_none() -> None:
    assert Arguments(lambda doc: None, "task", Context).context_parameter is None
    assert Arguments(with_context, "task").context_parameter is None


def test_a_parameter_of_a_type_without_json_is_named() -> None:
    def task(doc: int, lock: Any) -> None: ...

    task.__annotations__["lock"] = Hostile
    assert "cannot be stored as JSON" in problems(task, 1, 2)["lock"]


def test_pydantic_is_not_imported_before_the_first_call() -> None:
    code = """if True:
        import sys
        from outlast.model.arguments import Arguments, encode_result
        def task(doc: int) -> None: ...
        arguments = Arguments(task, "task")
        encode_result(None), encode_result(7, int), encode_result(True)
        assert "pydantic" not in sys.modules and "pydantic_core" not in sys.modules
        arguments.encode((1,), {})
        assert "pydantic" in sys.modules
    """
    path = ":".join(filter(None, sys.path))
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": path})
