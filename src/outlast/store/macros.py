"""Dialect macros: `ol.name` and `ol.name(arguments)` in our SQL, expanded for one database.

The tokenizer knows quoted text (strings, quoted identifiers), comments, macros, parentheses, commas
and semicolons. Calls nest; quoted text is unchanged, and comments are dropped. Errors have file and
line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple, NoReturn, Protocol

_LEXEMES = (  # compiled when first used
    r"""(?s)(?P<quoted>'[^']*'|"[^"]*"|--[^\n]*|/\*.*?\*/)"""
    r"""|\bol\.(?P<macro>\w+)(?P<call>\()?"""
    r"""|(?P<mark>[(),;'"]|/\*)"""
)
_COMMENT = ("--", "/*")


class MacroError(ValueError):
    """SQL that cannot be expanded: an unknown macro, or unbalanced text."""


class SqlSource(NamedTuple):
    """A piece of SQL and its location."""

    text: str
    file: str = "SQL"
    line: int = 1

    def fail(self, position: int, problem: str) -> NoReturn:
        line = self.line + self.text.count("\n", 0, position)
        raise MacroError(f"{self.file}:{line}: {problem}")


class Macro(NamedTuple):
    """A name that expands to other SQL."""

    expand: Callable[..., str]
    arguments: int | None = 1  # None: one or more


class Namespace(Protocol):
    """The meaning of names."""

    @property
    def macros(self) -> Mapping[str, Macro]:
        """Macros with arguments."""

    def name(self, word: str) -> str | None:
        """The SQL of a name without arguments; None if it is unknown."""


class _Parenthesis:
    """An open parenthesis: a macro's, or a plain one."""

    __slots__ = ("arguments", "macro", "start")

    def __init__(self, start: int, macro: str | None = None) -> None:
        self.start = start
        self.macro = macro
        self.arguments: list[list[str]] = [[]]


def expand(source: SqlSource, names: Namespace) -> str:
    """The text with every macro replaced, without its comments."""
    text, done = source.text, 0
    whole = _Parenthesis(0)
    inside = [whole]  # open parentheses, the innermost last
    for token in re.finditer(_LEXEMES, text):
        innermost = inside[-1]
        pieces = innermost.arguments[-1]
        pieces.append(text[done : token.start()])
        done = token.end()
        quoted, macro, call, mark = token.groups()
        if quoted is not None:
            pieces.append(" " if quoted.startswith(_COMMENT) else quoted)
        elif call is not None or mark == "(":
            inside.append(_Parenthesis(token.start(), macro))
        elif macro is not None:
            pieces.append(_named(source, token.start(), macro, names))
        elif mark == ")":
            if innermost is whole:
                source.fail(token.start(), "this closing parenthesis has no opening one")
            inside.pop()
            inside[-1].arguments[-1].append(_closed(source, innermost, names))
        elif mark == "," and innermost.macro is not None:
            innermost.arguments.append([])
        elif mark in (",", ";"):
            pieces.append(mark)
        else:
            source.fail(token.start(), f"this {mark} is not closed")
    if inside[-1] is not whole:
        source.fail(inside[-1].start, "this parenthesis is not closed")
    whole.arguments[-1].append(text[done:])
    return "".join(whole.arguments[-1])


def _closed(source: SqlSource, found: _Parenthesis, names: Namespace) -> str:
    if found.macro is None:
        return f"({''.join(found.arguments[0])})"
    macro = names.macros.get(found.macro)
    if macro is None:
        source.fail(found.start, f"there is no macro ol.{found.macro}(…)")
    arguments = ["".join(pieces).strip() for pieces in found.arguments]
    if arguments == [""]:
        arguments = []
    if "" in arguments:
        source.fail(found.start, f"an argument of ol.{found.macro}(…) is empty")
    wanted = macro.arguments
    if not arguments if wanted is None else len(arguments) != wanted:
        some = "some" if wanted is None else wanted
        source.fail(
            found.start, f"ol.{found.macro}(…) takes {some} arguments, not {len(arguments)}"
        )
    try:
        return macro.expand(*arguments)
    except ValueError as error:
        source.fail(found.start, f"ol.{found.macro}(…): {error}")


def _named(source: SqlSource, start: int, word: str, names: Namespace) -> str:
    sql = names.name(word)
    if sql is None:
        source.fail(start, f"ol.{word} is neither a table, a fragment nor a macro")
    return sql


def split(text: str) -> tuple[str, ...]:
    """The statements of an expanded text."""
    ends = [token.start() for token in re.finditer(_LEXEMES, text) if token["mark"] == ";"]
    starts = [0, *(end + 1 for end in ends)]
    parts = (text[start:end].strip() for start, end in zip(starts, [*ends, None], strict=True))
    return tuple(part for part in parts if part)
