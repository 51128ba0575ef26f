"""Where things are: the service may be mounted under a prefix, so nobody writes an address down."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlencode

from starlette.requests import Request


class Links:
    """`url("/jobs", job.id, tab="events")` is `<prefix>/jobs/<id>?tab=events`, all of it quoted.
    What is None is left out of the query."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix.rstrip("/")

    @classmethod
    def of(cls, request: Request) -> Links:
        return cls(quote(request.scope.get("root_path", ""), safe="/"))

    def __call__(self, path: str, *parts: Any, **query: Any) -> str:
        made = self.prefix + path
        for part in parts:
            made = f"{made.rstrip('/')}/{quote(str(part), safe='')}"
        said = {name: value for name, value in query.items() if value is not None}
        return f"{made}?{urlencode(said)}" if said else made

    def local(self, wanted: str) -> str:
        """Where somebody wants to go next, if that is a path of ours; else the start."""
        ours = wanted.startswith(f"{self.prefix}/") and not wanted.startswith("//")
        plain = all(" " < letter < "\x7f" for letter in wanted) and "\\" not in wanted
        return wanted if ours and plain else self("/")
