"""The description of the API (OpenAPI 3.1), generated from the route table."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from ..model.api_token import Scope
from ..version import VERSION
from .problems import MEDIA, ProblemDetails
from .request import RequestContext
from .route import ANY_TOKEN, PUBLIC, Route

SCHEMA_REF = "#/components/schemas/{model}"
DESCRIBED = ("/api/", "/hooks/")  # paths for programs; all others are for browsers and probes


async def describe(call: RequestContext) -> dict[str, object]:
    document = _cached_description()
    if prefix := call.request.scope.get("root_path"):  # mounted in another app
        return {**document, "servers": [{"url": prefix}]}
    return document


@cache
def _cached_description() -> dict[str, object]:
    """The description, cached: it is the same for every caller, and takes 50 ms to generate."""
    from .route_table import ROUTES as EVERY

    return description(EVERY)


def description(routes: Iterable[Route]) -> dict[str, object]:
    listed = [route for route in routes if route.path.startswith(DESCRIBED)]
    paths: dict[str, dict[str, object]] = {}
    for route in listed:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Outlast",
            "version": VERSION,
            "description": "Background jobs that outlast the processes that run them.",
        },
        "paths": paths,
        "components": {
            "schemas": _schemas(listed),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(route: Route) -> dict[str, object]:
    operation: dict[str, object] = {
        "operationId": route.name,
        "summary": route.summary,
        "description": _who(route),
        "responses": _responses(route),
    }
    if parameters := [*_path(route), *_query(route), *_headers(route)]:
        operation["parameters"] = parameters
    if route.request is not None:
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": _ref(route.request)}},
        }
    if route.scope is not PUBLIC:
        operation["security"] = [{"token": []}]
    return operation


def _who(route: Route) -> str:
    if route.scope is PUBLIC:
        return "Unauthenticated."
    if route.scope is ANY_TOKEN:
        return "Needs a token of any scope."
    whole = " It concerns all tenants: a token of one tenant is refused." if route.everyone else ""
    scopes = f"scope `{route.scope}`"
    if route.also is not None:
        scopes = f"scopes `{route.scope}` and `{route.also}`"
    return f"Needs the {scopes}.{whole}"


def _responses(route: Route) -> dict[str, Any]:
    good: dict[str, object] = {"description": route.summary}
    if route.response is not None:
        good["content"] = {route.media[0]: {"schema": _ref(route.response)}}
    elif route.status != 204:
        good["content"] = {kind: {"schema": {}} for kind in route.media}
    found = {str(route.status): good}
    if route.pending:
        found["202"] = {**good, "description": route.pending}
    for status in sorted(_failures(route)):
        found[str(status)] = {"description": HTTPStatus(status).phrase}
        if status >= 400:
            found[str(status)]["content"] = {MEDIA: {"schema": _ref(ProblemDetails)}}
    return found


def _failures(route: Route) -> set[int]:
    failures = {503, *route.statuses}
    if route.scope is not PUBLIC:
        failures |= {401, 403, 429}
    if route.request is not None:
        failures |= {400, 413, 415, 422}
    if route.query is not None:
        failures |= {413, 422}
    return failures - {route.status}


def _path(route: Route) -> list[dict[str, object]]:
    """Parameters in the path: ids, and the name of a hook. (Other text may be a literal segment of
    another path, such as `/jobs/batch`.)"""
    id, text = {"type": "string", "format": "uuid"}, {"type": "string", "minLength": 1}
    return [
        {"name": name, "in": "path", "required": True, "schema": text if name == "name" else id}
        for name in re.findall(r"{(\w+)}", route.path)
    ]


def _query(route: Route) -> list[dict[str, Any]]:
    if route.query is None:
        return []
    schema = _without_defaults(route.query.model_json_schema(ref_template=SCHEMA_REF))
    required = set(schema.get("required", ()))
    return [
        {
            "name": name,
            "in": "query",
            "required": name in required,
            "description": facts.get("description", ""),
            "schema": {key: value for key, value in facts.items() if key != "description"},
        }
        for name, facts in schema.get("properties", {}).items()
    ]


def _headers(route: Route) -> list[dict[str, object]]:
    return [
        {"name": name, "in": "header", "required": False, "description": about,
         "schema": {"type": "string", "minLength": 1, "maxLength": 150, "pattern": "^[!-~]+$"}}
        for name, about in route.headers.items()
    ]  # fmt: skip


def _schemas(routes: Iterable[Route]) -> dict[str, object]:
    models: dict[tuple[type[BaseModel], Any], None] = {(ProblemDetails, "serialization"): None}
    for route in routes:
        if route.request is not None:
            models[route.request, "validation"] = None
        if route.query is not None:
            models[route.query, "validation"] = None
        if route.response is not None:
            models[route.response, "serialization"] = None
    _, made = models_json_schema(list(models), ref_template=SCHEMA_REF)
    return {name: _without_defaults(schema) for name, schema in made.get("$defs", {}).items()}


def _without_defaults(schema: dict[str, Any]) -> dict[str, Any]:
    """Optional fields without `default`: TypeScript generators treat a field with a default as
    always present, so that callers would have to send it. Meaningful defaults are in the
    description."""
    if "properties" not in schema:
        return schema
    fields = {name: _without_default(facts) for name, facts in schema["properties"].items()}
    return {**schema, "properties": fields}


def _without_default(facts: dict[str, Any]) -> dict[str, Any]:
    if "default" not in facts:
        return facts
    rest = {key: value for key, value in facts.items() if key != "default"}
    if facts["default"] in (None, ""):
        return rest
    about = " ".join(filter(None, (facts.get("description"), f"(default: {facts['default']})")))
    return {**rest, "description": about}


def _ref(model: type[BaseModel]) -> dict[str, str]:
    return {"$ref": SCHEMA_REF.format(model=model.__name__)}


ROUTES = (
    Route("GET", "/api/v1/openapi.json", Scope.READ, describe, "This description"),
)  # fmt: skip
