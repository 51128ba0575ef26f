"""The reference of the API, made from the table of routes.

python -m outlast.service.reference > docs/reference/http-api.md
"""

from __future__ import annotations

from typing import Any

from . import dashboard
from .openapi import description
from .route import ANY_TOKEN, PUBLIC, Route
from .routes import ROUTES

INTRODUCTION = """\
# HTTP API

`outlast serve` answers here; see [how to serve](../how-to/serve.md). This page is written by
`python -m outlast.service.reference` from the table that routing and authorisation come from, and a
test compares them. The same as OpenAPI 3.1 is served at `/api/v1/openapi.json`.

- A call shows a token: `Authorization: Bearer olt_…`. The token says whose jobs it reaches (one
  tenant's, or everybody's; of some queues, or of all) and what it allows (its scopes). What is out
  of its reach is not found.
- Bodies are JSON (`Content-Type: application/json`), ids are strings, moments are ISO 8601 with a
  zone, spans are seconds.
- Lists come in pages. `next` of one is the `cursor` of the following; null says that there is no
  more. A page may be short or empty and have a `next` all the same, where a filter fits little.
- What goes wrong is `application/problem+json`: `type` (a name for the kind of problem), `title`,
  `status`, `detail`, and where it helps `problems` (each with `path` and `message`), `job` and
  `flow`.
- 429 and 503 say when to try again (`Retry-After`).
- `Idempotency-Key` on what enqueues: a request that is sent again with the same key makes no more
  jobs, for as long as the first ones are kept. Another request under the same key is refused (409).
  It is another way to give `key` of the body, for a job or a flow; both are fine if they are equal,
  and refused (422) if they differ. Jobs of a batch that have no `key` of their own get the header's
  with their index: `order-7[0]`; with a batch whose jobs all have their own, it is refused (422).

| status | means |
|---|---|
| 400, 413, 415, 422 | what was sent cannot be read, is too large, is no JSON, or cannot be used |
| 401 | there is no token, or it is not good (`WWW-Authenticate`) |
| 403 | the token lacks the scope, or does not reach that queue or all tenants |
| 404 | there is no such thing, or none for this token |
| 409 | it stands in a state that does not allow it, or the key belongs to something else |
| 429 | wrong tokens from here, or too many streams or waiting calls of this token or tenant |
| 503 | the database cannot answer, or too many streams or waiting calls are open |
"""


def reference() -> str:
    """The whole page."""
    told = description(ROUTES)
    listed = "\n".join(
        f"| [`{route.method} {route.path}`](#{_anchor(route)}) | {_scope(route)} |"
        f" {route.summary} |"
        for route in listed_routes()
    )
    head = f"{INTRODUCTION}\n| route | scope | |\n|---|---|---|\n{listed}\n"
    return "\n".join([head, *(_section(route, told) for route in listed_routes())])


def listed_routes() -> list[Route]:
    """What programs call. Pages, and what they are made of, are for people."""
    return [route for route in ROUTES if route not in dashboard.ROUTES]


def _section(route: Route, told: dict[str, Any]) -> str:
    parts = [f"## {route.method} {route.path}", f"{route.summary}. {_who(route)}"]
    if route.headers:
        parts += [f"Header `{name}`: {about}." for name, about in route.headers.items()]
    if route.query is not None:
        parts.append(_table("query", route.query.model_json_schema(), told))
    if route.request is not None:
        parts.append(_table("body", route.request.model_json_schema(), told))
    if route.response is not None:
        parts.append(_answer(route, told))
    return "\n\n".join(parts) + "\n"


def _who(route: Route) -> str:
    if route.scope is PUBLIC:
        return "Anybody may call it."
    if route.scope is ANY_TOKEN:
        return "Any token will do, whatever its scopes."
    whole = ", by a token that is not one tenant's own" if route.everyone else ""
    return f"Scope `{route.scope}`{whole}."


def _scope(route: Route) -> str:
    if route.scope is ANY_TOKEN:
        return "any"
    return "" if route.scope is PUBLIC else f"`{route.scope}`"


def _answer(route: Route, told: dict[str, Any]) -> str:
    assert route.response is not None
    schemas = told["components"]["schemas"]
    schema = schemas.get(route.response.__name__, {})
    kinds = [schemas[one["$ref"].rpartition("/")[2]] for one in schema.get("anyOf", ())] or [schema]
    names = "; or with ".join(
        ", ".join(f"`{name}`" for name in kind.get("properties", {})) for kind in kinds
    )
    pending = f"; or 202: {route.pending}" if route.pending else ""
    less = " (without the scope `read`)" if "anyOf" in schema else ""
    return f"Answers {route.status} with {names}{less}{pending}."


def _table(where: str, schema: dict[str, Any], told: dict[str, Any]) -> str:
    required = set(schema.get("required", ()))
    rows = [
        f"| `{name}` | {_type(facts)} | {_default(name, facts, required)} |"
        f" {facts.get('description', '')} |"
        for name, facts in schema.get("properties", {}).items()
    ]
    return "\n".join([f"| {where} | type | default | |", "|---|---|---|---|", *rows])


def _type(facts: dict[str, Any]) -> str:
    choices = facts.get("anyOf", [facts])
    return " or ".join(dict.fromkeys(_one_type(one) for one in choices if one != {"type": "null"}))


def _one_type(facts: dict[str, Any]) -> str:
    if "$ref" in facts:
        return _spaced(facts["$ref"].rpartition("/")[2])
    if "enum" in facts:
        return ", ".join(f"`{value}`" for value in facts["enum"])
    if facts.get("type") == "array":
        return f"list of {_type(facts.get('items', {}))}"
    kind = str(facts.get("format") or facts.get("type", "any"))
    low, high = facts.get("minimum"), facts.get("maximum")
    span = f" {low:g} … {high:g}" if low is not None and high is not None else ""
    return f"{kind}{span}"


def _spaced(name: str) -> str:
    """The names of models as words: a part of a flow, a job, a state."""
    return {"State": "state", "FlowJobBody": "job", "NewJobBody": "job"}.get(
        name, name.removesuffix("Body").lower()
    )


def _default(name: str, facts: dict[str, Any], required: set[str]) -> str:
    if name in required:
        return "required"
    default = facts.get("default")
    return "" if default in (None, "", []) else f"`{default}`"


def _anchor(route: Route) -> str:
    heading = f"{route.method} {route.path}".lower()
    return "".join(c for c in heading if c.isalnum() or c in " -_").replace(" ", "-")


if __name__ == "__main__":
    print(reference(), end="")
