"""Who calls: whoever shows a good token, or a browser's session that began with one.

As long as no token was ever made, and only for callers on this very machine, anybody may do
anything: that is for one person who tries it out. From the first token on every call needs one.

What was looked up is trusted for two seconds, so that a busy client costs one look-up in that time
and a revoked token is refused everywhere soon after.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from starlette.requests import Request

from ..model.tokens import LONGEST_TOKEN, Scope, Token, hashed
from ..ops import sessions, tokens
from ..ops.reach import Reach
from ..ops.report import clock
from ..ops.statement import Op
from .guards import is_local
from .live_tokens import LiveTokens
from .once import Once
from .problems import Throttled, Unauthorised
from .route import ANY_TOKEN, PUBLIC, AnyToken
from .throttle import Throttle

if TYPE_CHECKING:
    from .state import Service

TRUSTED_FOR = 2.0  # seconds
MOST_KEPT = 10_000  # look-ups
CLOCK_EVERY = 60.0  # seconds
USED_EVERY = 60.0  # seconds between notes that a token is in use


@dataclass(frozen=True, slots=True)
class Principal:
    """A caller. `tenant` None: of every tenant; `queues` None: all of them; `token` None: somebody
    on this machine, before there was any token."""

    name: str
    scopes: frozenset[str]
    tenant: str | None = None
    queues: frozenset[str] | None = None
    token: str | None = None
    session: str | None = None  # a browser's
    reach: Reach = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "reach", Reach(self.tenant, self.queues))

    @property
    def by_cookie(self) -> bool:
        return self.session is not None

    def may(self, scope: Scope | AnyToken | None) -> bool:
        if scope is PUBLIC or scope is ANY_TOKEN:
            return True
        return scope in self.scopes or Scope.ADMIN in self.scopes

    def serves(self, queue: str) -> bool:
        return self.queues is None or queue in self.queues


NOBODY = Principal("nobody", frozenset())
SOMEBODY_HERE = Principal("somebody on this machine", frozenset(Scope))


# By the hash of a token or of a session, or by a token's id; a name is looked up in one way only.
Finder = Callable[[str], Op[Token | None]]


@dataclass(frozen=True, slots=True)
class _Seen:
    token: Token | None
    until: float  # monotonic


class Principals:
    """Looks callers up, and remembers for a moment."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._seen: OrderedDict[str, _Seen] = OrderedDict()
        self._once: Once[Token | None] = Once()
        self._guarded = False  # once true, for ever
        self._guarded_until = 0.0
        self._clock = (0.0, 0.0)  # the database's and ours, at one moment
        self.throttle = Throttle(service.settings.guesses)
        self._live = LiveTokens(service)

    async def identify(self, request: Request) -> Principal:
        """The caller, or an error that says what is missing."""
        if "authorization" in request.headers:
            return await self._by_token(request, _bearer(request.headers["authorization"]))
        if self._service.sessions.shown(request):
            return await self._by_session(request)
        if is_local(request) and not await self.guarded():
            return SOMEBODY_HERE
        raise Unauthorised("this call needs a token, as in `Authorization` with `Bearer`")

    async def login(self, request: Request, secret: str) -> Principal:
        """Who shows a token to begin a session."""
        return await self._by_token(request, secret)

    def forget(self, name: str) -> None:
        """What was known by this name is looked up anew."""
        self._seen.pop(name, None)

    async def guarded(self) -> bool:
        """Whether there was ever a token."""
        if not self._guarded and time.monotonic() >= self._guarded_until:
            await self._once.ask("guarded", self._ask_whether_guarded)
        return self._guarded

    async def _ask_whether_guarded(self) -> None:
        since = time.monotonic()
        self._guarded = await self._service.ol.store.arun(tokens.any_exists)
        self._guarded_until = since + TRUSTED_FOR

    async def now(self) -> float:
        """The database's clock, asked for now and then and reckoned from there."""
        if not self._clock[0] or time.monotonic() - self._clock[1] > CLOCK_EVERY:
            await self._once.ask("clock", self._ask_the_clock)
        theirs, ours = self._clock
        return theirs + time.monotonic() - ours

    async def _ask_the_clock(self) -> None:
        self._clock = await self._service.ol.store.arun(clock), time.monotonic()

    async def _by_token(self, request: Request, secret: str | None) -> Principal:
        address = address_of(request)
        hash = hashed(secret) if secret and len(secret) <= LONGEST_TOKEN else None
        if hash is not None and (token := self._remembered(hash)) is not None:
            return _principal(token)
        if hash is not None and hash in self._seen:  # it was good before: nothing holds it up
            token = await self._look_up(hash, tokens.by_hash)
        else:
            token = await self._look_up_throttled(address, hash)
        if token is None:
            self.throttle.wrong(address)
            self._service.audit.wrong_token(address)
            raise Unauthorised("this token is not good: it is unknown, expired or revoked")
        return _principal(token)

    async def _look_up_throttled(self, address: str, hash: str | None) -> Token | None:
        """Look up a token that was not seen here before. After wrong tokens from its address,
        further wrong ones are refused without a look-up; a good one passes."""
        with self.throttle.looking(address) as room:
            wait = self.throttle.wait(address)
            if (wait or not room) and not (hash and await self._live.has(hash)):
                raise Throttled(wait) if wait else Throttled(1.0, "too many tokens at once")
            return None if hash is None else await self._look_up(hash, tokens.by_hash)

    async def _by_session(self, request: Request) -> Principal:
        session = await self._service.sessions.of(request)
        if session is None or not (token := await self._look_up(session, sessions.token_of)):
            raise Unauthorised("this session is over: log in again")
        return _principal(token, session)

    def _remembered(self, name: str) -> Token | None:
        seen = self._seen.get(name)
        return seen.token if seen and time.monotonic() < seen.until else None

    async def _look_up(self, name: str, finder: Finder) -> Token | None:
        if (token := self._remembered(name)) is not None:
            return token
        return await self._once.ask(name, lambda: self._ask(name, finder))

    async def _ask(self, name: str, finder: Finder) -> Token | None:
        since = time.monotonic()
        token = await self._service.ol.store.arun(finder, name)
        if token is None:
            self.forget(name)
            return None
        await self._note_use(token)
        left = token.expires_at.timestamp() - token.now if token.expires_at else TRUSTED_FOR
        self._remember(name, _Seen(token, since + min(TRUSTED_FOR, left)))
        return token

    def _remember(self, name: str, seen: _Seen) -> None:
        self._seen[name] = seen
        self._seen.move_to_end(name)
        if len(self._seen) > MOST_KEPT:
            self._seen.popitem(last=False)

    async def _note_use(self, token: Token) -> None:
        if token.used_at is None or token.now - token.used_at.timestamp() > USED_EVERY:
            await self._service.ol.store.arun(tokens.used, token.id)


def address_of(request: Request) -> str:
    return request.client.host if request.client else "unknown"


def _principal(token: Token, session: str | None = None) -> Principal:
    queues = None if token.queues is None else frozenset(token.queues)
    name = f"token {token.name} ({token.id})"
    return Principal(name, frozenset(token.scopes), token.tenant, queues, token.id, session)


def _bearer(header: str) -> str | None:
    kind, _, secret = header.partition(" ")
    return secret.strip() if kind.lower() == "bearer" and secret.strip() else None
