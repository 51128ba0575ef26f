"""Running jobs: `outlast worker`. Its flags are the fields of `WorkerSettings`."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import fields
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from click.core import ParameterSource

from ..model.settings import RetentionSettings, ServiceSettings, StoreSettings, WorkerSettings
from .apps import find_app
from .database_options import blobs_option, given_on_command, with_database_options
from .process_options import PortOption, log_options, misread_ports
from .remote_options import remote_options, remote_worker
from .settings_options import is_given, setting_options, variable_name

if TYPE_CHECKING:
    from ..metrics.targets import Target
    from ..worker.supervisor import Supervisor
    from ..worker.worker import Worker
    from ..worker.worker_metrics import WorkerMetrics

log = logging.getLogger("outlast.worker")

MAX_NAMES = 8  # queues or tasks that the first line of the log names

# Variables that Kubernetes sets in every container for a service named "outlast".
PLATFORM_PREFIXES = ("OUTLAST_SERVICE_", "OUTLAST_PORT_")


@click.command(
    epilog="""
    \b
    Examples: outlast worker shop.tasks:ol
              outlast worker shop.tasks:ol --queues mail,docs --concurrency 8 --processes 4
              outlast worker shop.tasks:ol --until-idle
              outlast worker shop.tasks:ol --server https://jobs.example.org --token-file token

    SIGTERM or Ctrl-C: stop claiming, let running jobs end for --grace seconds, and release the rest
    without spending an attempt. A second signal skips the wait.
    """
)
@click.argument("app")
@click.option(
    "--queues",
    metavar="A,B",
    envvar="OUTLAST_QUEUES",
    show_envvar=True,
    help="Only these queues; default: all.",
)
@click.option(
    "--processes",
    type=click.IntRange(1, 1000),
    default=1,
    envvar="OUTLAST_PROCESSES",
    show_default=True,
    show_envvar=True,
    help="Worker processes, under a supervisor that restarts those that die.",
)
@click.option(
    "--until-idle",
    is_flag=True,
    help="Stop when no job of its queues is due or running. Exit code 1: a job went dead.",
)
@remote_options
@setting_options(WorkerSettings)
@click.option(
    "--metrics-port",
    cls=PortOption,
    envvar="OUTLAST_METRICS_PORT",
    help="Port of /metrics, /livez and /readyz; 0: a free port, which is logged. With several"
    " processes, the n-th listens on this port + n.",
)
@click.option(
    "--metrics-host",
    default="127.0.0.1",
    envvar="OUTLAST_METRICS_HOST",
    show_default=True,
    show_envvar=True,
    help="Address of these endpoints, which are unauthenticated.",
)
@log_options
@blobs_option
@with_database_options
@click.pass_context
def worker(
    ctx: click.Context, /, app: str, queues: str | None, processes: int, **given: Any
) -> None:
    """Run the jobs of APP until stopped.

    APP is module:attr, importable from the working directory; :attr is optional if the module
    creates exactly one Outlast. One of several databases is module:attr.NAME.
    """
    from ..worker.idle_stop import stop_when_idle
    from ..worker.logs import set_up, tear_down
    from ..worker.signals import stop_on_signals

    url, schema, blobs = given.pop("url"), given.pop("schema"), given_on_command(ctx, "blobs")
    url = url or os.environ.pop(CHILD_URL, None)
    given.pop("blobs")
    level, format = given.pop("log_level"), given.pop("log_format")
    metrics = MetricsOptions(given.pop("metrics_host"), given.pop("metrics_port"))
    remote = {name: given.pop(name) for name in ("server", "token_file", "spool")}
    until_idle = given.pop("until_idle")
    given = {name: value for name, value in given.items() if is_given(ctx, name)}
    WorkerSettings.of({}, **given)  # report errors before the app is imported
    set_up(level, format)
    ctx.call_on_close(tear_down)
    found = find_app(app, url, schema, blobs)
    connected: Callable[[], bool] | None = None
    if remote["server"]:
        far = remote_worker(found, _queue_names(queues), remote, given)
        created, connected = far.worker, lambda: far.connected
    else:
        created = found.worker(_queue_names(queues), **given)
    for warning in (*unknown_variables(os.environ), *misread_ports(os.environ)):
        log.warning(warning)
    if until_idle:
        stop_when_idle(created)
    if processes > 1:
        children = ChildProcesses(_child_command(ctx, schema), processes, until_idle=until_idle)
        os.environ |= _child_secrets(url, remote["server"])
        ctx.exit(_supervise(created, children, metrics, remote=bool(remote["server"])))
    with stop_on_signals(created):  # before any output says that it has started
        _log_settings(created, remote["server"] or created.app.store.address)
        with metrics.of_worker(created, connected):
            created.run()
    if until_idle and created.counts["dead"]:
        ctx.exit(1)


class ChildProcesses(NamedTuple):
    """The worker processes of a supervisor."""

    command: list[str]
    processes: int
    until_idle: bool


class MetricsOptions(NamedTuple):
    """The address of the metrics endpoint; without a port there is none."""

    host: str
    port: int | None

    def of_worker(
        self, worker: Worker, connected: Callable[[], bool] | None
    ) -> AbstractContextManager[None]:
        """`connected` is for a remote worker: whether its server responds."""
        if self.port is None:
            return nullcontext()
        from ..metrics.targets import RemoteWorkerTarget, WorkerTarget

        if connected is not None:
            return self._serving(RemoteWorkerTarget(worker, connected))
        return self._serving(WorkerTarget(worker))

    def of_supervisor(
        self, supervisor: Supervisor, worker: Worker, figures: WorkerMetrics, *, remote: bool
    ) -> AbstractContextManager[None]:
        if self.port is None:
            return nullcontext()
        from ..metrics.targets import SupervisorTarget

        limit = worker.settings.live_within
        store = None if remote else worker.app.store
        return self._serving(SupervisorTarget(supervisor, store, figures, limit))

    def of_child(self, number: int) -> dict[str, str]:
        """Variables of the n-th child: its own port."""
        if self.port is None:
            return {}
        port = self.port + number if self.port else 0
        return {variable_name("metrics_port"): str(port), variable_name("metrics_host"): self.host}

    @contextmanager
    def _serving(self, subject: Target) -> Iterator[None]:
        from ..metrics.http_server import MetricsServer

        endpoint = MetricsServer(subject, self.host, self.port or 0)
        endpoint.start()
        try:
            yield
        finally:
            endpoint.stop()


def _supervise(
    worker: Worker, children: ChildProcesses, metrics: MetricsOptions, *, remote: bool
) -> int:
    from ..worker.child_reaper import ChildReaper, leave_to_leases
    from ..worker.supervisor import Supervisor

    burials, grace = ChildReaper(worker.app.store), worker.settings.grace
    bury = leave_to_leases if remote else burials
    supervisor = Supervisor(children.command, children.processes, grace, bury, metrics.of_child)
    supervisor.until_idle = children.until_idle
    return supervisor.run(metrics.of_supervisor(supervisor, worker, burials.metrics, remote=remote))


def _queue_names(queues: str | None) -> list[str] | None:
    return None if queues is None else [name.strip() for name in queues.split(",")]


def _log_settings(worker: Worker, database: object) -> None:
    """Log the start in one line that fits a screen, and every effective setting at debug level."""
    tasks, settings = worker.app.registry.names(), worker.settings
    queues = "all" if worker.queues is None else _some(worker.queues)
    changed = [
        f"{spec.name}={getattr(settings, spec.name)}"
        for spec in fields(settings)
        if getattr(settings, spec.name) != spec.default and spec.name != "concurrency"
    ]
    log.info(
        "worker %s on %s, queues: %s, tasks: %s, %s", worker.id, database, queues,
        _some(tasks) or "none", ", ".join([f"concurrency={settings.concurrency}", *changed]),
    )  # fmt: skip
    every = (f"{spec.name}={getattr(settings, spec.name)}" for spec in fields(settings))
    log.debug("settings: %s", ", ".join(every))


def _some(names: Sequence[str]) -> str:
    """The first names of a list, and how many more there are."""
    shown, more = ", ".join(names[:MAX_NAMES]), len(names) - MAX_NAMES
    return f"{shown} and {more} more" if more > 0 else shown


CHILD_URL = "OUTLAST_CHILD_URL"  # passes --url from a supervisor to its children
OWN_ENVIRONMENT = {"app", "processes", "metrics_port", "metrics_host", "url", "server"}


def _child_secrets(url: str | None, server: str | None) -> dict[str, str]:
    """URLs, which may hold passwords, as variables: other users of the machine can read a process's
    arguments, but not its environment."""
    addresses = {CHILD_URL: url, variable_name("server"): server}
    return {name: value for name, value in addresses.items() if value}


def _child_command(ctx: click.Context, schema: str | None) -> list[str]:
    """The command line of one child process: the options of this one, and `--processes 1`."""
    command = [sys.executable, "-m", "outlast", "worker", ctx.params["app"], "--processes", "1"]
    values = {**ctx.params, "schema": schema}
    for param in ctx.command.params:
        name = str(param.name)
        is_schema = name == "schema" and values[name]
        given = ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if not (is_schema or given) or name in OWN_ENVIRONMENT:
            continue
        if isinstance(values[name], bool):
            command.append((param.opts if values[name] else param.secondary_opts)[0])
        else:
            command += [param.opts[0], str(values[name])]
    return command


def unknown_variables(environ: Mapping[str, str]) -> list[str]:
    """Warnings about variables that look like a misspelt setting. Others that start with OUTLAST_
    are ignored: some platforms set them."""
    settings = (WorkerSettings, StoreSettings, RetentionSettings, ServiceSettings)
    known = {variable_name(spec.name) for kind in settings for spec in fields(kind)}
    known |= {
        variable_name(name) for name in ("url", "schema", "queues", "processes", "host", "port")
    }
    known |= {variable_name(name) for name in ("log_format", "log_level", "lifeline", "instance")}
    known |= {
        variable_name(name) for name in ("metrics_port", "metrics_host", "blobs", "child_url")
    }
    return [
        f"{name} is not a setting of Outlast and has no effect; did you mean {close[0]}?"
        for name in sorted(environ)
        if name.startswith("OUTLAST_")
        and name not in known
        and not name.startswith(PLATFORM_PREFIXES)
        if (close := get_close_matches(name, known, 1, 0.85))
    ]
