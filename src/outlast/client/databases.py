"""Several databases, each a whole Outlast: a tenant's jobs are in one of them.

A task is declared once, and every database knows it. Its jobs are enqueued to the database of their
tenant; a worker works for one database. The databases share nothing, so one that is down stops its
own tenants only.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar, cast, overload

from ..model.errors import InvalidOption, StoreError, StoreUnavailable, UnknownTenant
from ..model.flow import Enqueueable
from ..model.job import Job, NewJob
from ..model.options import check_name
from ..model.schedule_state import ScheduleDefinition
from ..model.task import DEFAULT_TENANT, Call, TaskDefinition
from ..model.tenants import tenants_of
from ..task_decorator import task
from .client import Outlast

if TYPE_CHECKING:
    from ..task_decorator import TaskDecorator

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

Route: TypeAlias = Mapping[str, str] | Callable[[str], str | None]

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,47}")  # in a URL's path, and after a dot of `module:attr`


class Databases:
    """Several databases by name, and the tenants of each.

    `route` names the database of a tenant: a mapping, or a function that is called at every enqueue
    and returns None for a tenant without a database. It may change while the program runs; jobs
    stay where they were enqueued.
    """

    around_handlers = None
    tenant_required = True  # a job without a tenant belongs to no database

    def __init__(self, by_name: Mapping[str, Outlast], route: Route) -> None:
        self.by_name = {_check_database(name, ol): ol for name, ol in by_name.items()}
        if not self.by_name:
            raise InvalidOption(option="by_name", reason="must name a database")
        self._route = self._checked(route)
        self.registry = SharedRegistry(self)
        for ol in self.by_name.values():
            ol._parts.check_tenants = partial(self._refuse_foreign, ol)

    # Define

    task: TaskDecorator = cast(Any, task)

    # Route

    def of(self, tenant: str) -> Outlast:
        """The database of a tenant. Raises UnknownTenant."""
        name = self._route(check_name("tenant", tenant))
        if name is None:
            raise UnknownTenant(tenant=tenant, databases=", ".join(self.by_name))
        return self._database(name)

    def _checked(self, route: object) -> Callable[[str], str | None]:
        if callable(route):
            return route
        if not isinstance(route, Mapping):
            reason = f"must be a mapping or a function, not {route!r:.80}"
            raise InvalidOption(option="route", reason=reason)
        for name in set(route.values()):
            self._database(name)
        return route.get

    def _database(self, name: str) -> Outlast:
        try:
            return self.by_name[name]
        except (KeyError, TypeError):
            known = ", ".join(self.by_name)
            reason = f"names the database {name!r:.80}, which is not one of {known}"
            raise InvalidOption(option="route", reason=reason) from None

    def _refuse_foreign(self, here: Outlast, jobs: Iterable[NewJob]) -> None:
        """Refuse jobs of tenants that another database has. Those of tenants without a database
        may be here: messages of an outbox, for example, need not name one."""
        for tenant in {job.tenant for job in jobs} - {DEFAULT_TENANT}:
            name = self._route(tenant)
            if name is not None and self._database(name) is not here:
                reason = (
                    f"is {tenant!r:.80}, which the database {name} has, not this one: enqueue such"
                    " jobs with task.enqueue(…) or Databases.enqueue(…)"
                )
                raise InvalidOption(option="tenant", reason=reason)

    def _serving(self, tenant: str, database: Sequence[str] | None) -> Outlast:
        """The database at this URL and schema, in a process that was started for a job of this
        tenant; a remote worker has no database."""
        for ol in self.by_name.values():
            if database == [ol.store.address.url, ol.store.address.schema]:
                return ol
        routed = self.of(tenant)
        if database is not None:  # its worker was started with --url
            routed.move(*database)
        return routed

    # Enqueue

    @overload
    def enqueue(self, *calls: Call[T], conn: object = None) -> list[Job[T]]: ...
    @overload
    def enqueue(self, *calls: Enqueueable, conn: object = None) -> list[Job]: ...

    def enqueue(self, *calls: Any, conn: Any = None) -> Any:
        """Enqueue calls, chains, groups and flows to the database of their tenant, all or none.
        Calls for tenants in two databases are refused: no transaction covers both."""
        return self._common(calls).enqueue(*calls, conn=conn)

    @overload
    async def aenqueue(self, *calls: Call[T], conn: object = None) -> list[Job[T]]: ...
    @overload
    async def aenqueue(self, *calls: Enqueueable, conn: object = None) -> list[Job]: ...

    async def aenqueue(self, *calls: Any, conn: Any = None) -> Any:
        return await self._common(calls).aenqueue(*calls, conn=conn)

    def _common(self, parts: tuple[Any, ...]) -> Outlast:
        """The one database of these calls; any, if there are no calls."""
        tenants = dict.fromkeys(tenant for part in parts for tenant in tenants_of(part))
        found = {id(ol): (tenant, ol) for tenant in tenants for ol in [self.of(tenant)]}
        if len(found) > 1:
            (one, _), (other, _) = list(found.values())[:2]
            reason = (
                f"is {one!r:.80} and {other!r:.80}, which are in two databases: jobs that are"
                " enqueued together commit together; enqueue those of each database by themselves"
            )
            raise InvalidOption(option="tenant", reason=reason)
        return next((ol for _, ol in found.values()), next(iter(self.by_name.values())))

    # All databases

    def each(self, verb: Callable[[Outlast], T], timeout: float = 5.0) -> dict[str, T | StoreError]:
        """Call a verb on every database at the same time: `each(Outlast.counts)`. The result of a
        database that is unreachable, or does not answer in time, is its error."""
        pool = ThreadPoolExecutor(len(self.by_name), thread_name_prefix="outlast-databases")
        asked = {name: pool.submit(verb, ol) for name, ol in self.by_name.items()}
        pool.shutdown(wait=False)  # threads that are late end by the deadline of their store
        wait(asked.values(), timeout)
        return {name: _answer(future, timeout) for name, future in asked.items()}

    async def aeach(
        self, verb: Callable[[Outlast], Awaitable[T]], timeout: float = 5.0
    ) -> dict[str, T | StoreError]:
        asked = {name: asyncio.ensure_future(verb(ol)) for name, ol in self.by_name.items()}
        try:
            await asyncio.wait(asked.values(), timeout=timeout)
            return {name: _answer(future, timeout) for name, future in asked.items()}
        finally:
            for future in asked.values():
                future.add_done_callback(_take_error)
                future.cancel()

    def __repr__(self) -> str:
        return f"<Databases {', '.join(self.by_name)}>"


class AnyFuture(Protocol[T_co]):
    """A future, of a thread or of asyncio."""

    def done(self) -> bool: ...

    def result(self) -> T_co: ...


class SharedRegistry:
    """Registers a task with every database, and its schedule with the database of its tenant."""

    def __init__(self, databases: Databases) -> None:
        self._databases = databases

    def add(self, definition: TaskDefinition) -> None:
        for ol in self._databases.by_name.values():
            ol.registry.add(definition)

    def add_schedule(self, definition: ScheduleDefinition) -> None:
        self._databases.of(definition.tenant).registry.add_schedule(definition)


def _check_database(name: object, ol: object) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        reason = f"must be 1 to 48 of a–z, 0–9, _ and -, starting with a letter; not {name!r:.80}"
        raise InvalidOption(option="by_name", reason=f"has a name that {reason}")
    if not isinstance(ol, Outlast):
        reason = f"must map {name!r} to an Outlast(…), not {ol!r:.80}"
        raise InvalidOption(option="by_name", reason=reason)
    return name


def _answer(asked: AnyFuture[T], timeout: float) -> T | StoreError:
    """The result of a call, or its error, or the error that it is late."""
    if not asked.done():
        return StoreUnavailable(reason=f"no response within {timeout:g} s")
    try:
        return asked.result()
    except StoreError as error:
        return error


def _take_error(late: asyncio.Future[Any]) -> None:
    """Retrieve the error of a late call: asyncio would log it, because no caller waits for it."""
    if not late.cancelled():
        late.exception()
