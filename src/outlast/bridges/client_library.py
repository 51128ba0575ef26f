"""Client libraries of brokers: extras that are imported when a bridge connects."""

from __future__ import annotations

from importlib.util import find_spec

from ..model.errors import Unsupported


def require_client(module: str, extra: str, what: str) -> None:
    """Refuse a bridge whose client is not installed, naming the extra that has it."""
    try:
        found = find_spec(module) is not None
    except ModuleNotFoundError:  # the parent package is missing
        found = False
    if not found:
        reason = f"{what} needs the Python package {module}: pip install 'outlast[{extra}]'"
        raise Unsupported(reason=reason)
