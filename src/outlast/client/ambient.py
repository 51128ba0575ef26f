"""Ambient transactions: an enqueue without `conn` joins the open transaction around it, and so do
cancel, retry and signals.

Outlast guesses nothing: a transaction is ambient only where the program has named it, with
`ol.bind(session)` or by installing the Django app. The setting `ambient` decides then:

    join    the enqueue uses that transaction, as if it were passed as `conn` (default)
    warn    the enqueue commits by itself, and the first one warns about it
    off     the enqueue commits by itself
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Literal, get_args

from ..model.errors import InvalidSetting

AmbientMode = Literal["join", "warn", "off"]

NOT_JOINED = (
    "this job is committed by itself, not with the open transaction around it: pass conn=…,"
    ' or set ambient="join" (ambient="off" ends this warning)'
)


def check_ambient(mode: object) -> AmbientMode:
    if mode not in get_args(AmbientMode):
        raise InvalidSetting(
            field="ambient", reason=f"must be one of join, warn and off, not {mode!r:.80}"
        )
    return mode  # type: ignore[return-value]


class AmbientTransaction:
    """The transaction that an enqueue without `conn` finds: the innermost bound session, else what
    `find` returns."""

    def __init__(self, mode: AmbientMode, find: Callable[[], object | None] | None = None) -> None:
        self._mode = mode
        self._find = find
        self._binding: ContextVar[_Binding | None] = ContextVar("outlast_binding", default=None)
        self._warned = False

    def connection(self) -> object | None:
        """The connection or session to enqueue on; None: a connection of the store."""
        found = self._bound_session()
        if found is None and self._find is not None:
            found = self._find()
        if found is None or self._mode == "join":
            return found
        if self._mode == "warn" and not self._warned:
            self._warned = True
            warnings.warn(NOT_JOINED, RuntimeWarning, stacklevel=2)
        return None

    @contextmanager
    def bind(self, session: object) -> Iterator[None]:
        binding = _Binding(session, self._binding.get())
        token = self._binding.set(binding)
        try:
            yield
        finally:
            binding.open = False
            self._binding.reset(token)

    def _bound_session(self) -> object | None:
        binding = self._binding.get()
        while binding is not None and not binding.open:
            binding = binding.outer
        return None if binding is None else binding.session


@dataclass(slots=True)
class _Binding:
    """One `bind`. An asyncio task that was started inside keeps a copy of the context after the
    block has ended: it must not add jobs to a session that is never committed again."""

    session: object
    outer: _Binding | None
    open: bool = True
