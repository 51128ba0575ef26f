"""Authentication: callers by token, or by a browser session that began with one.

Until the first token is created, local callers are not authenticated and have full access, for
trying out the service. From the first token on, every call needs one.

Look-ups are cached for two seconds: a busy client costs one look-up in that time, and a revoked
token is refused everywhere soon after.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from starlette.requests import Request

from ...model.api_token import MAX_TOKEN_CHARS, Scope, Token, token_hash
from ...ops import sessions, tokens
from ...ops.access import Access
from ...ops.operation import Op
from ...ops.report import clock
from ...single_flight import SingleFlight, result_within
from ..problems import Throttled, Unauthorised
from ..route import ANY_TOKEN, PUBLIC, AnyToken
from ..security import is_local
from .live_tokens import LiveTokens
from .throttle import Throttle

if TYPE_CHECKING:
    from ..components import Service

CACHE_FOR_S = 2.0  # seconds
MAX_CACHED = 10_000  # entries
CLOCK_INTERVAL_S = 60.0  # seconds
USE_NOTE_INTERVAL_S = 60.0  # seconds between updates of a token's last use
USED_WAIT_S = 0.25  # for such an update: a database lock must not refuse a valid token


@dataclass(frozen=True, slots=True)
class Principal:
    """A caller. `tenant` None: all tenants; `queues` None: all queues; `token` None: a local caller
    before the first token was created."""

    name: str
    scopes: frozenset[str]
    tenant: str | None = None
    queues: frozenset[str] | None = None
    token: str | None = None
    session: str | None = None  # of a browser
    reach: Access = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "reach", Access(self.tenant, self.queues))

    @property
    def by_cookie(self) -> bool:
        return self.session is not None

    def has_scope(self, scope: Scope | AnyToken | None) -> bool:
        if scope is PUBLIC or scope is ANY_TOKEN:
            return True
        return scope in self.scopes or Scope.ADMIN in self.scopes

    def can_access(self, queue: str) -> bool:
        return self.queues is None or queue in self.queues


ANONYMOUS = Principal("nobody", frozenset())
LOCAL_CALLER = Principal("a local user", frozenset(Scope))


# Keyed by the hash of a token or a session, or by a token's id; each name has one kind of look-up.
TokenLookup = Callable[[str], Op[Token | None]]


@dataclass(frozen=True, slots=True)
class _CachedToken:
    token: Token | None
    until: float  # monotonic


class Principals:
    """Looks up callers, and caches them briefly."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._cache: OrderedDict[str, _CachedToken] = OrderedDict()
        self._single_flight: SingleFlight[Token | None] = SingleFlight()
        self._noting: SingleFlight[None] = SingleFlight()
        self._guarded = False  # once true, always true
        self._guarded_valid_until = 0.0
        self._clock = (0.0, 0.0)  # the database's clock and the monotonic one, at the same time
        self.throttle = Throttle(service.settings.guesses)
        self._live = LiveTokens(service)

    async def identify(self, request: Request) -> Principal:
        """The caller; raises `Unauthorised` with the reason."""
        if "authorization" in request.headers:
            return await self._by_token(request, _bearer(request.headers["authorization"]))
        if self._service.sessions.has_cookie(request):
            return await self._by_session(request)
        if is_local(request) and not await self.guarded():
            return LOCAL_CALLER
        raise Unauthorised(
            "a token is required: send it in the header Authorization, after the word Bearer"
        )

    async def login(self, request: Request, secret: str) -> Principal:
        """The caller whose token starts a session."""
        return await self._by_token(request, secret)

    def forget(self, name: str) -> None:
        """Drop a name from the cache."""
        self._cache.pop(name, None)

    async def guarded(self) -> bool:
        """Whether any token was ever created."""
        if not self._guarded and time.monotonic() >= self._guarded_valid_until:
            await self._single_flight.run("guarded", self._read_guarded)
        return self._guarded

    async def _read_guarded(self) -> None:
        since = time.monotonic()
        self._guarded = await self._service.ol.store.arun(tokens.any_exists)
        self._guarded_valid_until = since + CACHE_FOR_S

    async def now(self) -> float:
        """The database's clock, read periodically and extrapolated."""
        if not self._clock[0] or time.monotonic() - self._clock[1] > CLOCK_INTERVAL_S:
            await self._single_flight.run("clock", self._read_clock)
        theirs, ours = self._clock
        return theirs + time.monotonic() - ours

    async def _read_clock(self) -> None:
        self._clock = await self._service.ol.store.arun(clock), time.monotonic()

    async def _by_token(self, request: Request, secret: str | None) -> Principal:
        address = address_of(request)
        hash = token_hash(secret) if secret and len(secret) <= MAX_TOKEN_CHARS else None
        if hash is not None and (token := self._cached(hash)) is not None:
            return _principal(token)
        if hash is not None and hash in self._cache:  # valid before: nothing delays it
            token = await self._look_up(hash, tokens.by_hash)
        else:
            token = await self._look_up_throttled(address, hash)
        if token is None:
            self.throttle.record_failure(address)
            self._service.failed_logins.add(address)
            raise Unauthorised("this token is invalid: unknown, expired or revoked")
        return _principal(token)

    async def _look_up_throttled(self, address: str, hash: str | None) -> Token | None:
        """Look up a token that is not cached. After wrong tokens from its address, further wrong
        ones are refused without a look-up; a valid one passes."""
        with self.throttle.lookup_slot(address) as room:
            wait = self.throttle.wait(address)
            if (wait or not room) and not (hash and await self._live.contains(hash)):
                raise Throttled(wait) if wait else Throttled(1.0, "too many concurrent tokens")
            return None if hash is None else await self._look_up(hash, tokens.by_hash)

    async def _by_session(self, request: Request) -> Principal:
        session = await self._service.sessions.session_of(request)
        if session is None or not (token := await self._look_up(session, sessions.token_of)):
            raise Unauthorised("this session has ended: log in again")
        return _principal(token, session)

    def _cached(self, name: str) -> Token | None:
        cached = self._cache.get(name)
        return cached.token if cached and time.monotonic() < cached.until else None

    async def _look_up(self, name: str, finder: TokenLookup) -> Token | None:
        if (token := self._cached(name)) is not None:
            return token
        return await self._single_flight.run(name, lambda: self._fetch(name, finder))

    async def _fetch(self, name: str, finder: TokenLookup) -> Token | None:
        since = time.monotonic()
        token = await self._service.prompt_store.arun(finder, name)
        if token is None:
            self.forget(name)
            return None
        await self._note_use(token)
        left = token.expires_at.timestamp() - token.now if token.expires_at else CACHE_FOR_S
        self._cache_token(name, _CachedToken(token, since + min(CACHE_FOR_S, left)))
        return token

    def _cache_token(self, name: str, cached: _CachedToken) -> None:
        self._cache[name] = cached
        self._cache.move_to_end(name)
        if len(self._cache) > MAX_CACHED:
            self._cache.popitem(last=False)

    async def _note_use(self, token: Token) -> None:
        if token.used_at is None or token.now - token.used_at.timestamp() > USE_NOTE_INTERVAL_S:
            await result_within(
                self._noting.start(token.id, lambda: self._note(token.id)), USED_WAIT_S
            )

    async def _note(self, id: str) -> None:
        await self._service.ol.store.arun(tokens.mark_used, id)


def address_of(request: Request) -> str:
    return request.client.host if request.client else "unknown"


def _principal(token: Token, session: str | None = None) -> Principal:
    queues = None if token.queues is None else frozenset(token.queues)
    name = f"token {token.name} ({token.id})"
    return Principal(name, frozenset(token.scopes), token.tenant, queues, token.id, session)


def _bearer(header: str) -> str | None:
    kind, _, secret = header.partition(" ")
    return secret.strip() if kind.lower() == "bearer" and secret.strip() else None
