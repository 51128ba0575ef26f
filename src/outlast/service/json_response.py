"""JSON that any client can parse, although old stored values may be invalid."""

from __future__ import annotations

import json
import math

from pydantic_core import to_json
from starlette.responses import Response


class JsonResponse(Response):
    media_type = "application/json"

    def render(self, content: object) -> bytes:
        try:
            text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
            return text.encode()
        except ValueError:  # NaN is not JSON, and a lone surrogate is not UTF-8
            return json.dumps(_encodable(content)).encode()


def json_line(value: object) -> bytes:
    """Compact, in a single line, and quickly: for frames, tokens and the like."""
    try:
        return to_json(value)
    except ValueError:  # a row may hold text that is not UTF-8
        return json.dumps(value, separators=(",", ":")).encode()


def _encodable(value: object) -> object:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {str(name): _encodable(inner) for name, inner in value.items()}
    return [_encodable(inner) for inner in value] if isinstance(value, list) else value
