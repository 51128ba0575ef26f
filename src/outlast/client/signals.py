"""The verb that sends a signal to a job."""

from __future__ import annotations

from functools import partial
from typing import Any

from ..model.arguments.signal_value import check_declared, write_signal
from ..model.errors import StoreError
from ..model.options import check_name
from ..model.task import Registry
from ..ops.signals import CheckSignal, NewSignal, SentSignal, send_in_transaction, send_signal
from .base import actor, job_id
from .faces import Face
from .resources import ClientResources


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
    transaction commits, and the job hears of it within a second after that."""
    check_name("signal", name)
    if key is not None:
        check_name("key", key)
    sent = NewSignal(job_id(id), name, write_signal(name, value), key)
    check = declared_signals(on.parts.registry)
    if (conn := on.ambient(conn)) is not None:
        return await on.act_on(conn, send_in_transaction(sent, actor(), check))
    done = await _send(on, sent, check)
    if done.queue is not None:
        if done.notified:
            on.parts.notify_limiter.sent(done.queue)
        else:
            await on.notify(on.parts.notify_limiter.due([done.queue]))
    return done


async def _send(on: Face, signal: NewSignal, check: CheckSignal) -> SentSignal:
    try:
        return await on.run(
            send_signal, signal, actor(), check, channel=partial(_channel, on.parts)
        )
    except StoreError as error:
        if not on.store.can_notify or not error.facts.get("refused"):
            raise
        # Perhaps the notification was: the server's queue of them may be full.
        return await on.run(send_signal, signal, actor(), check)


def _channel(parts: ClientResources, queue: str) -> str | None:
    """Where the transaction of a signal should notify workers, too: nothing was sent to those of
    this queue for a while."""
    quiet = parts.store.can_notify and parts.notify_limiter.is_quiet(queue)
    return parts.store.channel if quiet else None


def declared_signals(registry: Registry) -> CheckSignal:
    """Checks signals of the tasks that this process knows."""

    def check(task: str, name: str, text: str) -> None:
        definition = registry.get(task)
        if definition is not None:
            check_declared(task, definition.signals, name, text)

    return check
