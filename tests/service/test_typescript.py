"""The description as generators of clients read it: what may be left out may be left out there."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from outlast.service.openapi import description
from outlast.service.route_table import ROUTES
from tests.support.requirements import require_program, skip_or_fail

GENERATOR = "openapi-typescript@7.13.0"
BODIES = [route.request for route in ROUTES if route.request and route.path.startswith("/api/")]


def test_a_field_that_may_be_left_out_has_no_default() -> None:
    """R202: a generator takes a field with a default for one that is always there."""
    told = description(ROUTES)
    schemas: dict[str, Any] = told["components"]["schemas"]
    for name, schema in schemas.items():
        for field, facts in schema.get("properties", {}).items():
            assert "default" not in facts, (name, field)
    for body in BODIES:
        assert body is not None
        optional = {name for name, field in body.model_fields.items() if not field.is_required()}
        assert not optional & set(schemas[body.__name__].get("required", ())), body
    parameters = [
        parameter
        for operations in told["paths"].values()
        for operation in operations.values()
        for parameter in operation.get("parameters", ())
    ]
    assert parameters and not any("default" in one["schema"] for one in parameters)
    assert "(default: dead)" in schemas["RedriveBody"]["properties"]["state"]["description"]


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_the_generated_typescript_asks_for_what_is_required_alone(tmp_path: Path) -> None:
    """R202: the real generator, on the real description: each optional field of each request has
    its question mark, each required one has none."""
    (tmp_path / "api.json").write_text(json.dumps(description(ROUTES)))
    command = [_generator(), "api.json", "-o", "api.ts"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=60)
    made = (tmp_path / "api.ts").read_text()
    for body in BODIES:
        assert body is not None
        fields = _fields(made, body.__name__)
        wanted = {name: field.is_required() for name, field in body.model_fields.items()}
        assert fields == wanted, body.__name__


def _fields(made: str, name: str) -> dict[str, bool]:
    """The fields of a generated type, and whether each must be there."""
    found = re.search(rf"^        {name}: {{\n(.*?)^        }};", made, re.DOTALL | re.MULTILINE)
    assert found, name
    lines = re.findall(r"^            (\w+)(\??): ", found[1], re.MULTILINE)
    return {field: not mark for field, mark in lines}


def _generator() -> Path:
    """From the npm registry when first needed, kept in the user's cache."""
    npm = require_program("npm")
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(home) / "outlast-tests" / GENERATOR
    program = folder / "node_modules" / ".bin" / "openapi-typescript"
    if not program.exists():
        folder.mkdir(parents=True, exist_ok=True)
        got = subprocess.run(
            [npm, "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts",
             GENERATOR, "typescript@5"],
            cwd=folder, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        if got.returncode or not program.exists():
            skip_or_fail(f"npm cannot fetch {GENERATOR}: {got.stderr.strip()[-300:]}")
    return program
