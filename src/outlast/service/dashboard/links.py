"""Links of the dashboard: every URL includes the prefix that the service is mounted under."""

from __future__ import annotations

from urllib.parse import quote, urlencode

from starlette.requests import Request


class Links:
    """Builds URLs: `url("/jobs", job.id, tab="events")` is `<prefix>/jobs/<id>?tab=events`, quoted.
    Parameters that are None are omitted."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix.rstrip("/")

    @classmethod
    def of(cls, request: Request) -> Links:
        return cls(quote(request.scope.get("root_path", ""), safe="/"))

    def __call__(self, path: str, *parts: object, **query: object) -> str:
        made = self.prefix + path
        for part in parts:
            made = f"{made.rstrip('/')}/{quote(str(part), safe='')}"
        params = {name: value for name, value in query.items() if value is not None}
        return f"{made}?{urlencode(params)}" if params else made

    def local(self, target: str) -> str:
        """A redirect target, if it is a path of this service; else the start page."""
        ours = target.startswith(f"{self.prefix}/") and not target.startswith("//")
        plain = all(" " < letter < "\x7f" for letter in target) and "\\" not in target
        return target if ours and plain else self("/")
