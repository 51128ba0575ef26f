"""The verb that sends a signal to a job."""

from __future__ import annotations

from typing import Any

from ..model.arguments.signal_value import check_declared, write_signal
from ..model.errors import InvalidSignal, StoreError
from ..model.options import check_name
from ..model.task import Registry
from ..ops.signals import (
    CheckSignal,
    NewSignal,
    SentSignal,
    send_at_once,
    send_in_transaction,
    send_signal,
)
from .faces import Face
from .verb_arguments import actor, job_id

ANY_SIGNAL = "!signal"  # not a queue: signals to jobs of any queue


async def signal(
    on: Face,
    id: str,
    name: str,
    value: Any = None,
    *,
    key: str | None = None,
    conn: object = None,
) -> SentSignal:
    """Send a value to a job that waits for it, or will. It is kept until a wait takes it; of
    several with one `key`, the first. With the caller's own connection, it exists if and when that
    transaction commits, and the job is notified within a second after that."""
    check_name("signal", name)
    if key is not None:
        check_name("key", key)
    sent = NewSignal(job_id(id), name, write_signal(name, value), key)
    check = declared_signals(on.parts.registry)
    if (conn := on.ambient(conn)) is not None:
        return await on.act_on(conn, send_in_transaction(sent, actor(), check))
    done = await _send(on, sent, check)
    limiter = on.parts.notify_limiter
    if done.queue is not None:
        if done.notified:
            limiter.sent(done.queue)
        else:
            await on.notify(limiter.due([done.queue]))
    return done


async def _send(on: Face, signal: NewSignal, check: CheckSignal) -> SentSignal:
    """Send a signal; in one round trip, after a pause and if no check must come first."""
    limiter = on.parts.notify_limiter
    if on.store.can_notify and limiter.is_quiet(ANY_SIGNAL) and _passes(on, signal, check):
        limiter.sent(ANY_SIGNAL)
        try:
            return await on.run(send_at_once, signal, actor(), check, on.store.channel)
        except StoreError as error:
            if not error.facts.get("refused"):
                raise
            # Perhaps the notification was refused: the server's queue may be full.
    return await on.run(send_signal, signal, actor(), check)


def _passes(on: Face, signal: NewSignal, check: CheckSignal) -> bool:
    """Whether every registered task accepts a signal, whichever task its job has."""
    try:
        for task in on.parts.registry.names():
            check(task, signal.name, signal.value)
    except InvalidSignal:
        return False
    return True


def declared_signals(registry: Registry) -> CheckSignal:
    """A check of signals by the tasks that this process has registered."""

    def check(task: str, name: str, text: str) -> None:
        definition = registry.get(task)
        if definition is not None:
            check_declared(task, definition.signals, name, text)

    return check
