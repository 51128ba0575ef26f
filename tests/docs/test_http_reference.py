"""docs/reference/http-api.md says what the table of routes says."""

from __future__ import annotations

from tests.docs.pages import ROOT
from tools.docs.api_reference import listed_routes, reference

PAGE = ROOT / "docs" / "reference" / "http-api.md"


def test_the_page_is_what_the_table_says() -> None:
    """R202: a route that is added or changed turns this red."""
    again = "write it anew: python -m tools.docs.api_reference > docs/reference/http-api.md"
    assert PAGE.read_text("utf-8") == reference(), again


def test_every_route_has_its_place() -> None:
    text = PAGE.read_text("utf-8")
    for route in listed_routes():  # pages are for people, and tell what they are themselves
        assert f"## {route.method} {route.path}\n" in text
