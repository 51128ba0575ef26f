"""Verbs for one-time links: create one, list those of a job, revoke one."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from uuid import UUID

from ..model.arguments.signal_value import declared_form
from ..model.errors import InvalidOption, LinkRefused
from ..model.job import Job
from ..model.signal_link import PATH, LinkRecord, SignalLink, new_link
from ..model.task import Registry
from ..ops import signal_links as link_ops
from ..ops.signal_links import SignalForm
from ..store.dialects import SQLITE
from .faces import Face
from .signals import declared_signals
from .verb_arguments import actor, job_id


async def signal_link(  # noqa: PLR0913 - each of them has a default
    on: Face,
    job: str | Job,
    name: str,
    value: Any = ...,
    *,
    choices: Mapping[str, Any] | None = None,
    expires: float | timedelta | str = "7d",
    text: str = "",
    key: str | None = None,
    conn: object = None,
) -> SignalLink:
    """Create a one-time link that sends a signal without a login: "approve" in a mail. Its page
    shows `text` and a button for the value, one for each of `choices` (labels and values), or else
    a form of the type that the task declares; a GET alone sends nothing. Of several links with one
    `key`, the first use counts. It expires, can be revoked, and ends with its job.

    `link.url` is the whole address, below `public_url`; it is a credential."""
    if value is not ...:
        if choices is not None:
            raise InvalidOption(option="choices", reason="and a value exclude each other")
        choices = {"Send": value}
    new = new_link(job_id(_id(job)), name, choices, expires, text, key)
    registry = on.parts.registry
    given = new, actor(), declared_signals(registry), declared_forms(registry)
    if (conn := on.ambient(conn)) is not None:
        signing = await _signing_secret(on)
        link, secret = await on.act_on(conn, link_ops.create_link(*given, signing=signing))
    else:
        link, secret = await on.run(link_ops.create_link, *given)
    path = PATH + secret
    return SignalLink(link.id, link.job, link.name, link.expires_at, path, on.parts.public_url)


async def _signing_secret(on: Face) -> str | None:
    """The secret that signs links, stored in a transaction of its own if there is none: other
    clients would wait for the caller's to end. On SQLite they wait in any case, and so would this
    client."""
    if on.store.address.dialect == SQLITE:
        return None
    await on.ready_beside_caller(create=False)
    return await on.run(link_ops.signing_secret)


async def signal_links(on: Face, job: str | Job) -> list[LinkRecord]:
    """The one-time links of a job, without their addresses, the oldest first; of more than a
    hundred, the latest."""
    return await on.run(link_ops.links, job_id(_id(job)))


async def revoke_signal_link(on: Face, link: str | SignalLink | LinkRecord) -> LinkRecord:
    """Revoke a one-time link, by its id; idempotent. A used one stays used."""
    return await on.run(link_ops.revoke_link, link_id(_id(link)), actor())


def link_id(id: str) -> str:
    """Normalize the id of a link; other text names no link."""
    try:
        return str(UUID(id))
    except ValueError:
        raise LinkRefused(f"{id!r:.80} is not the id of a link", state="unknown") from None


def _id(subject: object) -> str:
    return str(getattr(subject, "id", subject))


def declared_forms(registry: Registry) -> SignalForm:
    """The forms of signals of the tasks that this process has registered."""

    def form(task: str, name: str) -> Mapping[str, Any] | None:
        definition = registry.get(task)
        return None if definition is None else declared_form(task, definition.signals, name)

    return form
