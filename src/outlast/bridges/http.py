"""`Http`: signed webhooks, received by `POST /hooks/NAME` of the service, as a source of jobs.

    headers ─▶ signed and recent? ─▶ body within the limit ─▶ signature fits? ─▶ job, commit ─▶ 204

A sender that gets no 2xx sends the message again, under the same id: its job's key.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from ..model.errors import InvalidOption
from ..model.message import Message
from ..model.options import seconds
from .protocols import DEFAULT_REDELIVERY_S
from .signatures import COMMON_HEADERS, STYLES, SignatureStyle, SignedHead

DEFAULT_TOLERANCE_S = 300.0


class Http:
    """Webhooks of one sender. `style` is how it signs: "standard", "github" or "stripe".

    `secret` is one secret or several, while they are changed; `secret_env` names an environment
    variable with them, separated by spaces, which only the service needs. A signature with a
    timestamp may be `tolerance` seconds old. `headers` of the request are kept beside those of the
    style. `id_header` names the header with the delivery's id, where "github" senders differ.
    """

    def __init__(  # noqa: PLR0913 - the options of a source, by name
        self,
        style: str,
        *,
        secret: str | Iterable[str] | None = None,
        secret_env: str | None = None,
        tolerance: float = DEFAULT_TOLERANCE_S,
        redelivery: float = DEFAULT_REDELIVERY_S,
        headers: Iterable[str] = (),
        id_header: str | None = None,
    ) -> None:
        self._style = _checked_style(style)
        if (secret is None) == (secret_env is None):
            reason = "must be given, or the name of an environment variable as secret_env=…"
            raise InvalidOption(option="secret", reason=reason)
        self._secret_env = secret_env
        self._keys = None if secret is None else self._style.keys(_listed(secret))
        self.tolerance = seconds("tolerance", tolerance, above=0.0) or DEFAULT_TOLERANCE_S
        # A message may be repeated by anyone for as long as its signature is accepted.
        self.redelivery = max(seconds("redelivery", redelivery) or 0.0, 2 * self.tolerance)
        self._headers = frozenset(name.lower() for name in _names(headers))
        if id_header is not None and self._style.id_header is None:
            reason = f"is for the style github: {style!r} signs the id of a delivery"
            raise InvalidOption(option="id_header", reason=reason)
        self._id_header = None if id_header is None else id_header.lower()

    def keys(self) -> tuple[bytes, ...]:
        """The keys of the secrets; raises `InvalidOption` if the environment lacks them."""
        if self._keys is None:
            secrets = os.environ.get(str(self._secret_env), "").split()
            if not secrets:
                reason = f"is empty: set the environment variable {self._secret_env}"
                raise InvalidOption(option="secret_env", reason=reason)
            self._keys = self._style.keys(secrets)
        return self._keys

    def read_head(self, headers: Mapping[str, str]) -> SignedHead:
        """Read the claims of the headers (with names in lower case); raises `WebhookRefused` if no
        body could match them."""
        return self._style.read(headers, self.tolerance, self._id_header)

    def message(self, head: SignedHead, headers: Mapping[str, str], body: bytes) -> Message:
        """The message of a request; raises `WebhookRefused` unless a key signed it."""
        head.check(self.keys(), body)
        kept = {name: value for name, value in headers.items() if self._keeps(name)}
        return Message(head.id_in(body), body, headers=kept)

    def _keeps(self, name: str) -> bool:
        if name == self._style.signature:
            return False
        known = name in COMMON_HEADERS or name in self._headers or name == self._id_header
        return known or name.startswith(self._style.headers)

    def __repr__(self) -> str:
        return f"webhooks ({self._style.name})"


def _checked_style(style: object) -> SignatureStyle:
    found = STYLES.get(style) if isinstance(style, str) else None
    if found is None:
        reason = f"must be one of {', '.join(STYLES)}, not {style!r:.80}"
        raise InvalidOption(option="style", reason=reason)
    return found


def _listed(secret: object) -> list[str]:
    if isinstance(secret, str):
        return [secret]
    if isinstance(secret, Iterable):
        return list(secret)
    reason = f"must be text or a list of texts, not {type(secret).__name__}"
    raise InvalidOption(option="secret", reason=reason)


def _names(headers: Iterable[str]) -> list[str]:
    if isinstance(headers, str) or not isinstance(headers, Iterable):
        raise InvalidOption(option="headers", reason="must be a list of names")
    return list(headers)
