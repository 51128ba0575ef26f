"""`Celery`: an app whose tasks are jobs of Outlast.

    app = Celery("shop", broker="redis://…")       # the same line as before
    @app.task(bind=True, autoretry_for=(OSError,), retry_backoff=True)
    def charge(self, order): ...

    outlast worker shop:app

Jobs are stored at `url`, else $OUTLAST_URL, else sqlite:///outlast.db. The broker is used only by
`drain_queue`. `app.ol` is the `Outlast` of the app.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any, Unpack
from weakref import WeakSet

from ...bridges.celery import CeleryQueue
from ...client.client import Outlast
from ...model.errors import InvalidOption, Unsupported
from ...model.retry import Retry
from ...model.settings import WorkerOptions
from ...model.task import TaskDefinition
from ...worker.context import Context
from ...worker.worker import Worker
from .beat import read_beat_schedule
from .conf import CeleryConf, refuse_old_names
from .handler import handler_of
from .result import AsyncResult
from .signatures import Canvas, CelerySignature
from .tasks import CeleryTask, check_task, make_task

INSTEAD = {
    "control": "see `outlast queues`, `outlast cancel`, `outlast workers`",
    "backend": "results are columns of jobs: see app.ol.result(…)",
    "amqp": "there is no broker",
    "events": "see app.ol.events(…)",
    "worker_main": "run `outlast worker module:app`",
    "start": "run `outlast worker module:app`",
    "Beat": "every worker runs the schedules",
    "Worker": "run `outlast worker module:app`, or app.ol.worker(…)",
    "steps": "see app.ol.worker(…)",
    "user_options": "see `outlast worker --help`",
}
CONSTRUCTOR = ("broker", "backend", "include", "changes", "config_source", "namespace")


class CeleryOutlast(Outlast):
    """The `Outlast` of a Celery app: its workers load all tasks and schedules of the app."""

    celery: Celery

    def worker(
        self,
        queues: Iterable[str] | str | None = None,
        concurrency: int | None = None,
        **settings: Unpack[WorkerOptions],
    ) -> Worker:
        self.celery.finalize()
        return super().worker(queues, concurrency, **settings)


class Celery:
    """A Celery app whose jobs are stored at `url` and `schema`."""

    Task = CeleryTask

    def __init__(  # noqa: PLR0913 - as Celery has it
        self,
        main: str | None = None,
        *,
        broker: str | None = None,
        backend: str | None = None,
        include: Iterable[str] | None = None,
        changes: Mapping[str, Any] | None = None,
        config_source: Any = None,
        namespace: str | None = None,
        set_as_current: bool = True,
        url: str | None = None,
        schema: str | None = None,
        **others: object,
    ) -> None:
        if others:
            reason = f"takes {', '.join(CONSTRUCTOR)}, url and schema, not {', '.join(others)}"
            raise InvalidOption(option="Celery", reason=reason)
        self.main = main
        self.conf = CeleryConf()
        self.tasks: dict[str, CeleryTask] = {}
        self.ol = CeleryOutlast(url, schema=schema)
        self.ol.celery = self
        self.on_after_configure = self.on_after_finalize = Receivers()
        self._modules: list[Callable[[], Iterable[str]]] = []
        given = {"broker_url": broker, "result_backend": backend, "include": include}
        self.conf.update({name: value for name, value in given.items() if value is not None})
        self.conf.update(changes or {})
        if config_source is not None:
            self.config_from_object(config_source, namespace=namespace)
        _apps.add(self)
        for task in _shared:
            self._add(task)
        if set_as_current:
            _current[:] = [self]

    # Configure

    def config_from_object(self, source: object, silent: bool = False, **given: object) -> None:
        """Read settings from an object, or from a module by its name; with a `namespace`, the
        upper-case ones that begin with it."""
        prefix = f"{given['namespace']}_" if given.get("namespace") else ""
        if isinstance(source, str):
            module, _, attribute = source.partition(":")
            source = import_module(module)
            source = getattr(source, attribute) if attribute else source
        named = source if isinstance(source, Mapping) else _public(source)
        if not prefix:
            refuse_old_names(named)
        for name, value in named.items():
            if prefix and name.startswith(prefix):
                self.conf[name.removeprefix(prefix).lower()] = value
            elif not prefix and name.islower():
                self.conf[name] = value

    def autodiscover_tasks(
        self, packages: Any = None, related_name: str = "tasks", force: bool = False
    ) -> None:
        """Import `tasks` of these packages when a worker starts; by default, of Django's apps."""

        def modules() -> Iterable[str]:
            named = packages() if callable(packages) else packages
            return [f"{one}.{related_name}" for one in (_django_apps() if named is None else named)]

        self._modules.append(modules)
        if force:
            self.finalize()

    def finalize(self, auto: bool = False) -> None:
        """Import the modules with tasks, and declare the schedules, before a worker starts."""
        discovered = [module for found in self._modules for module in found()]
        for module in [*(self.conf.include or ()), *(self.conf.imports or ())]:
            import_module(module)
        for module in discovered:
            _import_if_there(module)
        self.on_after_configure.call(self)
        read_beat_schedule(self, self.conf.beat_schedule or {})

    def add_periodic_task(
        self,
        schedule: object,
        sig: Canvas,
        args: Iterable[object] | None = (),
        kwargs: Mapping[str, object] | None = None,
        **given: object,
    ) -> str:
        """Declare a schedule; its default name is that of the call."""
        if not isinstance(sig, CelerySignature):
            raise Unsupported(reason="a schedule calls one task: let that task enqueue the others")
        name = str(given.pop("name", None) or repr(sig))
        whole = sig.clone(args or (), kwargs, **given)
        entry = {
            "task": whole.task, "schedule": schedule, "args": whole.args, "kwargs": whole.kwargs,
            "options": whole.options,
        }  # fmt: skip
        read_beat_schedule(self, {name: entry})
        return name

    # Tasks

    def task(self, *functions: Callable[..., Any], **options: Any) -> Any:
        """`@app.task`, or `@app.task(bind=True, …)`."""

        def register(function: Callable[..., Any]) -> CeleryTask:
            name = options.get("name") or self.gen_task_name(function.__name__, function.__module__)
            options.setdefault("base", self.Task)
            made = make_task(function, name, {k: v for k, v in options.items() if k != "name"})
            made.app = self
            return self._add(made)

        return register(functions[0]) if functions else register

    def register_task(self, task: Any, **options: object) -> CeleryTask:
        """Register a class-based task: an instance or a class."""
        made: CeleryTask = task() if isinstance(task, type) else task
        made.name = made.name or self.gen_task_name(type(made).__name__, type(made).__module__)
        check_task(made)
        made.app = self
        return self._add(made)

    def _add(self, task: CeleryTask) -> CeleryTask:
        self.tasks[task.name] = task
        self.ol.registry.add(
            TaskDefinition(
                name=task.name,
                function=handler_of(task),
                retry=Retry(max_attempts=1),
                context_type=Context,
                breaker=None,  # no error counts as an outage
                tenant_required=self.ol.tenant_required,
            )
        )
        return task

    def gen_task_name(self, name: str, module: str) -> str:
        """A task name as Celery generates it, so that its messages match."""
        if module == "__main__":
            module = self.main or module
        return f"{module}.{name}" if module else name

    def send_task(
        self,
        name: str,
        args: Iterable[object] | None = None,
        kwargs: Mapping[str, object] | None = None,
        **options: object,
    ) -> AsyncResult:
        """Enqueue a call of a task by its name; this process need not know it."""
        result: AsyncResult = CelerySignature(name, args, kwargs, options, app=self).apply_async()
        return result

    def signature(self, name: str, args: Any = None, kwargs: Any = None, **given: Any) -> Canvas:
        options = {**given.pop("options", {}), **given}
        immutable = options.pop("immutable", False)
        return CelerySignature(name, args, kwargs, options, immutable=immutable, app=self)

    def AsyncResult(self, task_id: str) -> AsyncResult:
        return AsyncResult(task_id, app=self)

    # Migration from Celery

    def drain_queue(
        self, queue: str | None = None, *, broker: str | None = None, **given: Any
    ) -> Any:
        """Receive the messages of a Celery queue: the workers of this app store each message as one
        job, beside Celery's own workers. See `CeleryQueue` for options; `batch` and `wait` are
        those of `ol.source`."""
        from .drain import drain

        queue = queue or self.conf.task_default_queue
        broker = broker or self.conf.broker_url
        if broker is None:
            raise InvalidOption(option="broker", reason="must be the URL of Celery's broker")
        loop = {name: given.pop(name) for name in ("batch", "wait") if name in given}
        return drain(self, CeleryQueue(broker, queue=queue, **given), **loop)

    def set_current(self) -> None:
        _current[:] = [self]

    def set_default(self) -> None:
        _current[:] = [self]

    def close(self) -> None:
        self.ol.close()

    def __getattr__(self, name: str) -> Any:
        if name in INSTEAD:
            raise Unsupported(reason=f"app.{name} is not supported: {INSTEAD[name]}")
        raise AttributeError(f"'Celery' object has no attribute {name!r}")

    def __repr__(self) -> str:
        return f"<Celery {self.main or '__main__'} on {self.ol.store.address}>"


class Receivers:
    """Functions that are called with the app before a worker starts: `@app.on_after_configure.
    connect`."""

    def __init__(self) -> None:
        self._functions: list[Callable[..., object]] = []

    def connect(self, function: Callable[..., object] | None = None, **_: object) -> Any:
        if function is None:
            return self.connect
        self._functions.append(function)
        return function

    def call(self, app: Celery) -> None:
        for function in self._functions:
            function(sender=app)


_apps: WeakSet[Celery] = WeakSet()
_current: list[Celery] = []
_shared: list[CeleryTask] = []


def current_app() -> Celery:
    """The app that was created last, or a new one."""
    return _current[0] if _current else Celery("default")


def shared_task(*functions: Callable[..., Any], **options: Any) -> Any:
    """`@shared_task`: a task of every app of this process; a call belongs to the current one."""

    def register(function: Callable[..., Any]) -> CeleryTask:
        name = options.get("name") or f"{function.__module__}.{function.__name__}"
        given = {key: value for key, value in options.items() if key != "name"}
        made = make_task(function, name, given)
        type(made).app = property(lambda _: current_app())  # type: ignore[assignment]
        _shared.append(made)
        for app in _apps:
            app._add(made)
        return made

    return register(functions[0]) if functions else register


def _public(source: object) -> dict[str, object]:
    """The public values of a module or object, without its imports and definitions."""
    named = {name: getattr(source, name) for name in dir(source) if not name.startswith("_")}
    return {k: v for k, v in named.items() if not (callable(v) or isinstance(v, ModuleType))}


def _django_apps() -> list[str]:
    if "django" not in sys.modules:
        reason = "must name packages without Django: autodiscover_tasks([…])"
        raise InvalidOption(option="packages", reason=reason)
    from django.apps import apps

    return [config.name for config in apps.get_app_configs()]


def _import_if_there(module: str) -> None:
    """Import a module if it exists; an error in the module is raised."""
    try:
        import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
