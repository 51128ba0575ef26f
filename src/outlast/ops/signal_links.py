"""One-time links: create, look up, use once, revoke. Every action is recorded."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from ..model.errors import JobNotFound, KeyConflict, LinkRefused, TooLate
from ..model.ids import entropy
from ..model.lifecycle import STATES
from ..model.service_key import SIGNING_SECRET, service_key
from ..model.signal_link import (
    KEY_PURPOSE,
    LinkRecord,
    LinkState,
    NewLink,
    link_hash,
    read_choices,
    sign,
)
from ..model.timestamps import to_datetime
from . import tokens
from .access import ALL_JOBS, Access
from .job_actions import record_action
from .operation import BEGIN, Op, Rows, Statement
from .signals import CheckSignal, NewSignal, SentSignal, keep_and_wake

MAX_LINKS_SHOWN = 100

# The JSON schema of a signal's value, by task and name; raises if the task does not take it.
SignalForm = Callable[[str, str], Mapping[str, object] | None]


def create_link(
    new: NewLink,
    by: str,
    check: CheckSignal,
    form: SignalForm,
    reach: Access = ALL_JOBS,
    signing: str | None = None,
) -> Op[tuple[LinkRecord, str]]:
    """Store a link for a job that has not ended: its record, and the secret of its address.
    `signing` is the stored signing secret, if it is known."""
    yield BEGIN
    rows: Rows = yield Statement("read_recipient", {"id": new.job, **reach.params})
    if not rows:
        raise JobNotFound(job=new.job)
    state, task, _ = rows[0]
    if state in STATES and STATES[state].final:
        raise TooLate(job=new.job, state=state)
    for choice in new.choices or ():
        check(task, new.name, choice.value)
    schema = None if new.choices else form(task, new.name)
    key = service_key(signing or (yield from signing_secret()), KEY_PURPOSE)
    secret = sign(key, new.secret)
    given = {
        "id": new.id, "hash": link_hash(secret), "job": new.job, "name": new.name,
        "key": new.key, "text": new.text, "by": by, "expires_in": new.expires_in,
        "choices": None if new.choices is None else json.dumps(new.choices),
        "form": None if schema is None else json.dumps(schema),
    }  # fmt: skip
    made: Rows = yield Statement("insert_link", given)
    link = yield from _link(new.id)
    if made:
        facts = {"by": by, "link": link.id, "signal": link.name}
        facts["expires"] = link.expires_at.isoformat()
        yield from record_action("link-created", [new.job], facts)
    return link, secret


def signing_secret() -> Op[str]:
    return (yield from tokens.secret(SIGNING_SECRET, entropy(32).hex()))


def links(job: str) -> Op[list[LinkRecord]]:
    """The latest links of a job, in the order of creation."""
    rows: Rows = yield Statement("links_of_job", {"job": job, "limit": MAX_LINKS_SHOWN})
    return [read_link(row) for row in reversed(rows)]


def link_of(secret: str) -> Op[LinkRecord | None]:
    """The link of a secret, valid or not."""
    rows: Rows = yield Statement("link_by_hash", {"hash": link_hash(secret)})
    return read_link(rows[0]) if rows else None


def answer_link(id: str, value: str, use: str, check: CheckSignal) -> Op[SentSignal]:
    """Send the signal of a valid link, once. `use` names this request: if it is repeated because
    the response was lost, it counts as the same use. An invalid link is refused."""
    yield BEGIN
    link = yield from _link(id)
    held: Rows = yield Statement("hold_recipient", {"id": link.job, **ALL_JOBS.params})
    used: Rows = yield Statement("use_link", {"id": id, "use": use})
    if not used:
        raise LinkRefused(state=str((yield from _link(id)).state))
    signal = NewSignal(link.job, link.name, value, f"link {link.key or id}")
    try:
        sent = yield from keep_and_wake(signal, f"link {id}", check, held)
    except (TooLate, JobNotFound):
        raise LinkRefused(state=str(LinkState.ENDED)) from None
    except KeyConflict:
        raise LinkRefused(state=str(LinkState.ANSWERED)) from None
    if not sent.new and link.state is not LinkState.USED:  # a repeat finds its own signal
        raise LinkRefused(state=str(LinkState.ANSWERED))
    return sent


def revoke_link(id: str, by: str) -> Op[LinkRecord]:
    """Revoke a link; idempotent. A used one stays used."""
    yield BEGIN
    changed: Rows = yield Statement("revoke_link", {"id": id})
    link = yield from _link(id)
    if changed:
        facts = {"by": by, "link": id, "signal": link.name}
        yield from record_action("link-revoked", [link.job], facts)
    return link


def _link(id: str) -> Op[LinkRecord]:
    rows: Rows = yield Statement("link", {"id": id})
    if not rows:
        raise LinkRefused(state=str(LinkState.UNKNOWN))
    return read_link(rows[0])


def read_link(row: Any) -> LinkRecord:
    facts = dict(zip(_COLUMNS, row, strict=True))
    for name in ("created_at", "expires_at", "used_at", "revoked_at"):
        facts[name] = to_datetime(facts[name])
    facts["choices"] = read_choices(facts["choices"])
    facts["form"] = None if facts["form"] is None else json.loads(facts["form"])
    facts["job_ended"] = bool(facts["job_ended"])
    return LinkRecord(**facts)


_COLUMNS = tuple(field.name for field in fields(LinkRecord))
