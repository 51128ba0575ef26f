"""What a person with a browser sees and sends, without JavaScript."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urlencode

import httpx

from tests.service.serving import Served

FORM = "application/x-www-form-urlencoded"


class Seen(HTMLParser):
    """A page: its text, its links, its forms; and what a strict policy would refuse."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.words: list[str] = []
        self.links: dict[str, str] = {}
        self.forms: list[dict[str, Any]] = []
        self.inline: list[str] = []
        self.tags: list[str] = []
        self._link: str | None = None
        self.feed(html)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.words))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        facts = dict(attrs)
        self.tags.append(tag)
        if "style" in facts or any(name.startswith("on") for name in facts):
            self.inline.append(f"<{tag} {attrs}>")
        if tag == "style" or (tag == "script" and "src" not in facts):
            self.inline.append(f"<{tag}>")
        match tag:
            case "a":
                self._link = facts.get("href") or ""
            case "form":
                self.forms.append({"to": facts.get("action"), "fields": {}})
            case "input" if self.forms:
                self.forms[-1]["fields"][facts.get("name") or ""] = facts.get("value") or ""

    def handle_endtag(self, tag: str) -> None:
        if tag == "a":
            self._link = None

    def handle_data(self, data: str) -> None:
        self.words.append(data)
        if self._link is not None:
            self.links.setdefault(re.sub(r"\s+", " ", data).strip(), self._link)

    def form_to(self, path: str) -> dict[str, Any]:
        return next(form for form in self.forms if form["to"] == path)


class Browser:
    def __init__(self, http: httpx.Client, prefix: str = "") -> None:
        self.http = http
        self.prefix = prefix
        self.origin = str(http.base_url).rstrip("/")

    def go(self, path: str, status: int = 200) -> Seen:
        answer = self.http.get(f"{self.prefix}{path}", headers={"accept": "text/html"})
        assert answer.status_code == status, answer.text
        assert answer.headers["content-type"].startswith("text/html"), answer.headers
        return Seen(answer.text)

    def send(self, form: dict[str, Any], status: int = 200, **more: str) -> Seen:
        """A form, as it stands; the browser follows where it is sent."""
        headers = {"origin": self.origin, "accept": "text/html", "content-type": FORM}
        content = urlencode({**form["fields"], **more}).encode()  # also where nothing is in it
        answer = self.http.post(form["to"], content=content, headers=headers, follow_redirects=True)
        assert answer.status_code == status, answer.text
        return Seen(answer.text)

    def log_in(self, token: str) -> Seen:
        login = self.go("/login").form_to(f"{self.prefix}/login")
        return self.send(login, token=token)


@contextmanager
def looking(served: Served | str, prefix: str = "") -> Iterator[Browser]:
    url = served if isinstance(served, str) else served.url
    with httpx.Client(base_url=url, timeout=30, trust_env=False, verify=False) as http:
        yield Browser(http, prefix)
