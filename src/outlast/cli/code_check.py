"""Code check: compares waiting jobs with the signals and steps in the code of an app.

Names of steps are read from the source of the task's module: literals and f-strings. All texts of
the module count, because helper functions may call steps, too. A computed name proves nothing.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

from ..model.humanize import pluralize
from ..model.task import Registry
from ..ops.doctor.findings import Finding
from ..ops.doctor.waits import AwaitedSignals

STEP_METHODS = frozenset({"step", "steps"})


def code_findings(
    waits: Sequence[AwaitedSignals], steps: Sequence[tuple[str, str, int]], registry: Registry
) -> Iterator[Finding]:
    """Find waiting jobs that the app's code no longer fits."""
    for wait in waits:
        definition = registry.get(wait.task)
        if definition is None or not definition.signals:
            continue
        if not set(wait.names) & set(definition.signals):
            yield Finding(
                "unanswerable",
                f"{wait.text}, which the task no longer declares: answers are refused.",
                "Declare the signal in signals={…} until these jobs have ended, or cancel them.",
            )
    for task, step, jobs in steps:
        definition = registry.get(task)
        if definition is not None and has_step(definition.function, step) is False:
            keep = "has" if jobs == 1 else "have"
            yield Finding(
                "unknown-step",
                f"{pluralize(jobs, 'job')} of {task!r} {keep} kept the step {step!r}, which the"
                " code does not have.",
                "If it was renamed, it runs again under its new name: keep the old name until these"
                " jobs have ended. If it was removed, its result is not used.",
                problem=False,
            )


def has_step(function: Callable[..., object], name: str) -> bool | None:
    """Whether the code has a step of this name; None: unknown."""
    patterns = _patterns_of(inspect.unwrap(function))
    return None if patterns is None else any(one.fullmatch(name) for one in patterns)


@lru_cache(200)
def _patterns_of(function: Callable[..., object]) -> tuple[re.Pattern[str], ...] | None:
    module = inspect.getmodule(function)
    try:
        tree = ast.parse(inspect.getsource(module or function))
    except (OSError, TypeError, SyntaxError):
        return None
    nodes = list(ast.walk(tree))
    return None if any(map(_is_computed, nodes)) else tuple(_patterns(nodes))


def _is_computed(node: ast.AST) -> bool:
    """Whether this is a call of a step with a computed name."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    if node.func.attr not in STEP_METHODS:
        return False
    given = node.args[0] if node.args else None
    names = [given]
    if isinstance(given, ast.Dict):
        names = list(given.keys)
    elif isinstance(given, ast.DictComp):
        names = [given.key]
    return not all(map(_is_text, names))


def _is_text(node: ast.AST | None) -> bool:
    constant = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return constant or isinstance(node, ast.JoinedStr)


def _patterns(nodes: list[ast.AST]) -> Iterator[re.Pattern[str]]:
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield re.compile(re.escape(node.value))
        elif isinstance(node, ast.JoinedStr):
            parts = [
                re.escape(str(one.value)) if isinstance(one, ast.Constant) else ".*"
                for one in node.values
            ]
            if any(part != ".*" for part in parts):
                yield re.compile("".join(parts), re.DOTALL)
