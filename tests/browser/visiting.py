"""Somebody who looks at pages, and what happens to them that must not."""

from __future__ import annotations

from typing import Any

from tests.service.serving import Served
from tests.support import Database

WATCH = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (event) => {
  window.violations.push(`${event.violatedDirective} ${event.blockedURI} ${event.sample}`);
});
"""


class Visitor:
    """Logged in with a token that may do everything. `troubles` are dialogs, errors, messages about
    the policy, and requests to anywhere else."""

    def __init__(self, browser: Any, served: Served, stage: Any, database: Database) -> None:
        self.browser = browser
        self.served = served
        self.stage = stage
        self.database = database
        self.secret = served.token("admin", name="visitor")
        self.troubles: list[str] = []
        self._contexts: list[Any] = []
        self.page = self.open()

    def open(self, base: str | None = None, **settings: Any) -> Any:
        """A fresh page, logged in."""
        context = self.browser.new_context(**{"reduced_motion": "reduce"} | settings)
        self._contexts.append(context)
        context.add_init_script(WATCH)
        page = context.new_page()
        page.set_default_timeout(15_000)
        self._watch(page, base or self.served.url)
        page.base = base or self.served.url
        page.goto(f"{page.base}/login")
        page.fill("#token", self.secret)
        page.press("#token", "Enter")
        page.wait_for_url(lambda url: not url.endswith("/login"))
        self.troubles.clear()
        return page

    def _watch(self, page: Any, base: str) -> None:
        def note(said: str) -> None:
            self.troubles.append(f"{page.url}: {said[:300]}")

        def dialog(opened: Any) -> None:
            note(f"dialog {opened.message}")
            opened.dismiss()

        def message(said: Any) -> None:
            if "Content Security Policy" in said.text or "Refused to" in said.text:
                note(said.text)

        def request(asked: Any) -> None:
            if not asked.url.startswith(base):
                note(f"asks {asked.url}")

        page.on("dialog", dialog)
        page.on("pageerror", lambda error: note(f"error {error}"))
        page.on("console", message)
        page.on("request", request)

    def visit(self, path: str, page: Any = None) -> Any:
        page = page or self.page
        answer = page.goto(f"{page.base}{path}")
        assert answer.status == 200, (path, answer.status)
        return page

    def executed(self, page: Any = None) -> list[str]:
        """What ran, or tried to, on the page that is open."""
        found = (page or self.page).evaluate("[window.pwned ?? null, window.violations]")
        return [str(one) for one in (found[0], *found[1]) if one is not None]

    def close(self) -> None:
        for context in self._contexts:
            context.close()
        self.served.http.close()
