"""Tasks: a function, its name, and the options of its jobs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, Protocol, runtime_checkable

from .arguments import MAX_PAYLOAD, Arguments, ItemArguments, parameters_of
from .batch import Batch
from .breaker import Breaker
from .errors import InvalidOption, TenantRequired, UnknownTask
from .ids import new_job_id
from .job import NewJob, R
from .lazy_property import lazy
from .options import Lane, Options, check_name, seconds
from .retry import Retry
from .spelling import did_you_mean
from .task_function import check_function, is_async, is_importable, same_function
from .timestamps import to_epoch
from .uniqueness import unique_fields

if TYPE_CHECKING:
    from .schedule_state import ScheduleDefinition

DEFAULT_QUEUE = "default"
DEFAULT_TENANT = "default"
DEFAULT_CRASHES = 3
OPTIONS_OF_ONE_JOB = ("delay", "at", "key", "unique", "debounce", "max_wait", "after", "flow")


@dataclass(frozen=True)
class TaskDefinition:
    """A registered function. With `isolated`, it is a sync function that runs in a process that can
    be killed; with a `batch`, one call runs many jobs."""

    name: str
    function: Callable[..., Any]
    retry: Retry = Retry()
    options: Options = Options()
    isolated: bool = False
    context_type: type | None = None
    batch: Batch | None = None
    breaker: Breaker | None = Breaker()
    tenant_required: bool = False
    # The types of the signals that it waits for.
    signals: Mapping[str, object] = field(default_factory=dict, hash=False)
    around: Callable[[Callable[..., Any]], Callable[..., Any]] | None = None  # of its runs

    def __post_init__(self) -> None:
        check_name("name", self.name)
        check_function(self.name, self.function)
        if not isinstance(self.retry, Retry):
            raise InvalidOption(
                option="retry", reason=f"must be a Retry(…), not {self.retry!r:.80}"
            )
        if not isinstance(self.isolated, bool):
            raise InvalidOption(
                option="isolated", reason=f"must be True or False, not {self.isolated!r:.80}"
            )
        options = self.options
        _check_hook_kinds(options)
        if any(getattr(options, name) is not None for name in OPTIONS_OF_ONE_JOB):
            raise InvalidOption(
                option="delay, at, key, unique, debounce, max_wait, after and flow",
                reason="belong to a job: pass them with using(…)",
            )
        if self.isolated and self.is_async:
            raise InvalidOption(
                option="isolated", reason=f"is for sync functions: {self.name} is async"
            )
        if self.isolated and not is_importable(self.function):
            raise InvalidOption(
                option="isolated",
                reason=f"is for functions of a module, which another process finds by name:"
                f" {self.name} is a {type(self.function).__name__}",
            )
        if self.batch is not None and self.isolated:
            raise InvalidOption(
                option="isolated", reason=f"is not for batch tasks: {self.name} has batch=…"
            )
        if self.breaker is not None and not isinstance(self.breaker, Breaker):
            raise InvalidOption(
                option="breaker", reason=f"must be a Breaker(…) or None, not {self.breaker!r:.80}"
            )
        if self.batch is not None:
            _ = self.arguments  # refuse a function without a list here, not when it runs
        else:
            parameters_of(self.function, self.name)

    @lazy
    def arguments(self) -> Arguments:
        kind = Arguments if self.batch is None else ItemArguments
        return kind(self.function, self.name, self.context_type)

    @lazy
    def handler(self) -> Callable[..., Any]:
        """The function as a worker calls it; a plain call of the task calls `function`."""
        return self.function if self.around is None else self.around(self.function)

    @lazy
    def is_async(self) -> bool:
        return is_async(self.function)

    def call(
        self,
        id: str,
        options: Options,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        limit: int = MAX_PAYLOAD,
    ) -> NewJob:
        """One call of this task as a job to be inserted; bad arguments are refused here."""
        text = self.arguments.encode(args, kwargs, limit)
        job = NewJob(id=id, task=self.name, args=text, **self._job_fields(options))
        lane = options.lane or self.options.lane
        if lane is not None:
            job.lane = lane if isinstance(lane, str) else self._lane(lane, args, kwargs)
        return job

    def _lane(self, lane: Lane, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str | None:
        """The lane that a task's function returns for these arguments; None: the queue decides."""
        try:
            name = lane(**self.arguments.named(args, kwargs))
        except Exception as error:
            reason = f"of the task {self.name} failed: {type(error).__name__}: {error}"
            raise InvalidOption(option="lane", reason=reason) from error
        return None if name is None else check_name("lane", name)

    def _job_fields(self, options: Options) -> dict[str, Any]:
        """The fields shared by all calls with these options: cached, as calls come in bulk."""
        known, columns = self._cached_job_fields
        if known is options:
            return columns
        merged = options.over(self.options)
        if self.tenant_required and merged.tenant is None:
            raise TenantRequired(task=self.name)
        expires = merged.expires
        moment = to_epoch("expires", expires) if hasattr(expires, "tzinfo") else None
        hooks = _hooks(merged)
        columns = {
            "tenant": merged.tenant or DEFAULT_TENANT,
            "queue": merged.queue or DEFAULT_QUEUE,
            "priority": merged.priority or 0,
            "max_attempts": self._max_attempts(options),
            "max_crashes": merged.max_crashes or DEFAULT_CRASHES,
            "key": merged.key,
            "delay": seconds("delay", merged.delay),
            "at": to_epoch("at", merged.at),
            "expires_in": None if moment is not None else seconds("expires", expires),
            "expires_at": moment,
            "timeout": seconds("timeout", merged.timeout),
            "retry": options.retry.to_json() if options.retry else None,
            "hooks": hooks,
            "tied": hooks is not None,
            **unique_fields(merged),
        }
        if hooks is None:  # the caller may still change the arguments of hooks
            vars(self)["_cached_job_fields"] = (
                options,
                columns,
            )  # in one assignment: other threads read both
        return columns

    @lazy
    def _cached_job_fields(self) -> tuple[Options | None, dict[str, Any]]:
        return None, {}

    def _max_attempts(self, options: Options) -> int:
        if options.max_attempts is not None:
            return options.max_attempts
        if options.retry is not None:
            return options.retry.max_attempts
        return self.options.max_attempts or self.retry.max_attempts


@dataclass(frozen=True)
class Call(Generic[R]):
    """One call of a task that is not yet enqueued: what `task.job(…)` returns, for `ol.enqueue`,
    `ctx.enqueue`, `chain`, `group`, `Flow.add` and hooks."""

    definition: TaskDefinition
    options: Options
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    def using(self, options: Options) -> Call[R]:
        return replace(self, options=options.over(self.options))

    def new_job(self, id: str | None = None, limit: int = MAX_PAYLOAD) -> NewJob:
        id = id or new_job_id()
        return self.definition.call(id, self.options, self.args, self.kwargs, limit)


@runtime_checkable
class Notifiable(Protocol):
    """A webhook: it is notified when jobs end."""

    events: tuple[str, ...]

    def at_end(self, state: str) -> Call: ...


def _hooks(options: Options) -> str | None:
    """The jobs that the end of a job enqueues, by final state. They are validated now: the end must
    not fail because of them."""
    if not (options.on_success or options.on_dead or options.on_cancel or options.tell):
        return None
    by_state: dict[str, list[dict[str, object]]] = {}
    for state, option in _HOOKS.items():
        webhooks = [one for one in _webhooks(options.tell) if state in one.events]
        for hook in [*_as_list(getattr(options, option)), *webhooks]:
            call = hook.at_end(state) if isinstance(hook, Notifiable) else hook
            _check_hook(option, call)
            if call.options.tenant is None and call.definition.options.tenant is None:
                call = call.using(Options(tenant=options.tenant))
            by_state.setdefault(state, []).append(_hook_row(option, call))
    text = json.dumps(by_state)
    if len(text) > MAX_HOOK_CHARS:
        taken = f"take {len(text):,} characters of JSON, more than {MAX_HOOK_CHARS:,}"
        raise InvalidOption(
            option=_HOOKS[next(iter(by_state))], reason=f"calls {taken}: {TOO_DEEP}"
        )
    return text


def _hook_row(option: str, call: Call) -> dict[str, object]:
    try:
        return call.new_job().row()
    except RecursionError:
        raise InvalidOption(option=option, reason=f"calls are too deep: {TOO_DEEP}") from None


def calls_at_end(call: Call) -> list[Call]:
    """The calls among a job's hooks; webhooks have the job's own tenant."""
    own, defaults = call.options, call.definition.options
    found = []
    for option in _HOOKS.values():
        given = getattr(own, option)
        given = getattr(defaults, option) if given is None else given
        if given is not None and not isinstance(given, Iterator):  # it can be read only once
            found += [hook for hook in _as_list(given) if isinstance(hook, Call)]
    return found


MAX_HOOK_CHARS = 10 * MAX_PAYLOAD  # characters of JSON
TOO_DEEP = (  # each level of nesting escapes the text of the level inside it
    "a hook of a hook takes twice as many. Use chain(…) for jobs in sequence, or let the hook's job"
    " enqueue the others with ctx.enqueue(…)"
)
_HOOKS = {"succeeded": "on_success", "dead": "on_dead", "cancelled": "on_cancel"}


def _check_hook_kinds(options: Options) -> None:
    """Refuse invalid hooks at the declaration; the calls are checked at each enqueue."""
    if not isinstance(options.tell, Iterator):  # an iterator can be read only once
        _webhooks(options.tell)
    for option in _HOOKS.values():
        given = getattr(options, option)
        for hook in () if isinstance(given, Iterator) else _as_list(given):
            if not isinstance(hook, Notifiable):
                _check_hook(option, hook)


def _check_hook(option: str, call: object) -> None:
    if not isinstance(call, Call):
        reason = f"takes task.job(…) or a webhook, not {call!r:.80}"
        raise InvalidOption(option=option, reason=reason)
    if call.options.after or call.options.flow:
        raise InvalidOption(option=option, reason="cannot wait for other jobs")
    if call.options.key:  # a taken key would prevent the job's end
        raise InvalidOption(option=option, reason="cannot have a key")


def _webhooks(tell: object) -> list[Notifiable]:
    listed = _as_list(tell)
    for one in listed:
        if not isinstance(one, Notifiable):
            raise InvalidOption(option="tell", reason=f"takes webhooks, not {one!r:.80}")
    return listed


def _as_list(given: object) -> list[Any]:
    if given is None:
        return []
    if isinstance(given, Call | Notifiable | str) or not isinstance(given, Iterable):
        return [given]
    return list(given)


class Registry:
    """The tasks of a process, by name. A job without a registered task is never destroyed."""

    def __init__(self) -> None:
        self._by_name: dict[str, TaskDefinition] = {}
        self.schedules: dict[str, ScheduleDefinition] = {}  # that code declares

    def add_schedule(self, definition: ScheduleDefinition) -> None:
        other = self.schedules.get(definition.name)
        if other is not None and other.task != definition.task:
            raise InvalidOption(
                option="name",
                reason=f"{definition.name!r} is a schedule of {other.task} already: take another",
            )
        self.schedules[definition.name] = definition

    def add(self, definition: TaskDefinition) -> None:
        other = self._by_name.get(definition.name)
        if other is not None and not same_function(other.function, definition.function):
            raise InvalidOption(
                option="name",
                reason=f"{definition.name!r} is taken by {other.function!r}: give one another name",
            )
        self._by_name[definition.name] = definition

    def get(self, name: str) -> TaskDefinition | None:
        return self._by_name.get(name)

    def __getitem__(self, name: str) -> TaskDefinition:
        try:
            return self._by_name[name]
        except KeyError:
            near = did_you_mean(name, self.names())
            text = f"No task named {name!r:.80} is registered here{near}"
            text += " Import the module that defines it."
            raise UnknownTask(text, task=name) from None

    def names(self) -> list[str]:
        return sorted(self._by_name)
