"""Tenants of calls that are not enqueued yet: they decide to which database the jobs go."""

from __future__ import annotations

from collections.abc import Iterator

from .errors import InvalidOption, TenantRequired
from .flow import Chain, Flow, Group
from .task import Call, calls_at_end


def tenants_of(part: object) -> Iterator[str]:
    """The tenants of all calls in a part, and of the jobs that are enqueued when they end."""
    match part:
        case Call():
            tenant = part.options.tenant or part.definition.options.tenant
            if tenant is None:
                raise TenantRequired(task=part.definition.name)
            yield tenant
            for call in calls_at_end(part):
                yield call.options.tenant or call.definition.options.tenant or tenant
        case Flow():
            for node in part.nodes:
                yield from tenants_of(node.call)
        case Group() | Chain():
            for inner in part.parts:
                yield from tenants_of(inner)
        case _:
            reason = f"takes task.job(…), group(…), chain(…) and Flow(…), not {part!r:.80}"
            raise InvalidOption(option="enqueue", reason=reason)
