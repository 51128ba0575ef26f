"""The description is what the table says, and nothing that it promises is missing."""

from __future__ import annotations

from outlast.service.openapi import description
from outlast.service.route_table import ROUTES
from tests.service.serving import Served


def test_every_route_of_the_api_is_described(served: Served) -> None:
    """R202: the description is made from the table, and served."""
    told = served.get("/api/v1/openapi.json").json()
    assert told == description(ROUTES)
    listed = {(method.upper(), path) for path, one in told["paths"].items() for method in one}
    assert listed == {(r.method, r.path) for r in ROUTES if r.path.startswith(("/api/", "/hooks/"))}


def test_every_reference_leads_somewhere() -> None:
    told = description(ROUTES)

    def references(value: object) -> list[str]:
        if isinstance(value, dict):
            own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
            return own + [ref for inner in value.values() for ref in references(inner)]
        if isinstance(value, list):
            return [ref for inner in value for ref in references(inner)]
        return []

    names = {ref.rpartition("/")[2] for ref in references(told)}
    assert names <= told["components"]["schemas"].keys()
    assert len(names) > 20


def test_no_two_routes_share_a_name() -> None:
    names = [route.name for route in ROUTES]
    assert len(names) == len(set(names))


def test_what_a_path_asks_for_is_an_id(served: Served) -> None:
    """R202: what is none may be a word of another path, which takes another method."""
    asked = [
        parameter["schema"]
        for path, operations in description(ROUTES)["paths"].items()
        if path.startswith("/api/")
        for operation in operations.values()
        for parameter in operation.get("parameters", ())
        if parameter["in"] == "path" and parameter["name"] != "name"  # of a signal: any text
    ]
    assert asked and all(schema == {"type": "string", "format": "uuid"} for schema in asked)
    assert served.get("/api/v1/jobs/batch").status_code == 405
    assert served.get("/api/v1/jobs/nothing").status_code == 404
