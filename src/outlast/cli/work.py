"""Carrying out jobs: `outlast worker`. Its flags are the fields of `WorkerSettings`."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import fields
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from click.core import ParameterSource

from ..model.settings import RetentionSettings, ServiceSettings, StoreSettings, WorkerSettings
from .apps import find_app
from .far import remote_options, remote_worker
from .places import blobs_option, placed, said_here
from .running_options import Port, log_options, misread
from .settings_options import setting_options, variable, was_said

if TYPE_CHECKING:
    from ..metrics.subjects import Subject
    from ..worker.figures import Figures
    from ..worker.supervisor import Supervisor
    from ..worker.worker import Worker

log = logging.getLogger("outlast.worker")

# What Kubernetes says to every container about a service that is called "outlast".
PLATFORM = ("OUTLAST_SERVICE_", "OUTLAST_PORT_")


@click.command(
    epilog="""
    \b
    Examples: outlast worker shop.tasks:ol
              outlast worker shop.tasks:ol --queues mail,docs --concurrency 8 --processes 4
              outlast worker shop.tasks:ol --server https://jobs.example.org --token-file token

    SIGTERM or Ctrl-C: claim nothing more, let running jobs end for --grace seconds, put the rest
    back unspent. A second one does not wait.
    """
)
@click.argument("app")
@click.option(
    "--queues",
    metavar="A,B",
    envvar="OUTLAST_QUEUES",
    show_envvar=True,
    help="Only these queues; else all of them.",
)
@click.option(
    "--processes",
    type=click.IntRange(1, 1000),
    default=1,
    envvar="OUTLAST_PROCESSES",
    show_default=True,
    show_envvar=True,
    help="So many processes, watched over and started again when one dies.",
)
@remote_options
@setting_options(WorkerSettings)
@click.option(
    "--metrics-port",
    cls=Port,
    envvar="OUTLAST_METRICS_PORT",
    help="Serve /metrics, /livez and /readyz here; 0: on a free port, which is logged. With several"
    " processes the n-th one is served on this port + n.",
)
@click.option(
    "--metrics-host",
    default="127.0.0.1",
    envvar="OUTLAST_METRICS_HOST",
    show_default=True,
    show_envvar=True,
    help="The address that they are served on. Nobody is asked who they are there.",
)
@log_options
@blobs_option
@placed
@click.pass_context
def worker(
    ctx: click.Context, /, app: str, queues: str | None, processes: int, **given: Any
) -> None:
    """Carry out the jobs of APP until told to stop.

    APP is module:attr, importable from the working directory; a module that makes exactly one
    Outlast may stand alone.
    """
    from ..worker.logs import set_up, tear_down

    url, schema, blobs = given.pop("url"), given.pop("schema"), said_here(ctx, "blobs")
    url = url or os.environ.pop(CHILD_URL, None)
    given.pop("blobs")
    level, format = given.pop("log_level"), given.pop("log_format")
    metrics = Metrics(given.pop("metrics_host"), given.pop("metrics_port"))
    far = {name: given.pop(name) for name in ("server", "token_file", "spool")}
    given = {name: value for name, value in given.items() if was_said(ctx, name)}
    WorkerSettings.of({}, **given)  # what is wrong with them is said before anything is loaded
    set_up(level, format)
    ctx.call_on_close(tear_down)
    found = find_app(app, url, schema, blobs)
    if far["server"]:
        made: Worker = remote_worker(found, _names(queues), far, given)
    else:
        made = found.worker(_names(queues), **given)
    for told in (*strangers(os.environ), *misread(os.environ)):
        log.warning(told)
    if processes > 1:
        command = _child(ctx, schema)
        os.environ |= _child_secrets(url, far["server"])
        ctx.exit(_supervise(made, command, processes, metrics, far=bool(far["server"])))
    _introduce(made, far["server"] or made.store.address)
    with metrics.of_worker(made):
        made.run()


class Metrics(NamedTuple):
    """Where they are served, if they are."""

    host: str
    port: int | None

    def of_worker(self, worker: Worker) -> AbstractContextManager[None]:
        if self.port is None:
            return nullcontext()
        from ..metrics.subjects import OneRemoteWorker, OneWorker
        from ..remote import RemoteWorker

        if isinstance(worker, RemoteWorker):
            return self._served(OneRemoteWorker(worker, lambda: worker.connected))
        return self._served(OneWorker(worker))

    def of_supervisor(
        self, supervisor: Supervisor, worker: Worker, figures: Figures, *, far: bool
    ) -> AbstractContextManager[None]:
        if self.port is None:
            return nullcontext()
        from ..metrics.subjects import OneSupervisor

        limit = worker.settings.live_within
        store = None if far else worker.store
        return self._served(OneSupervisor(supervisor, store, figures, limit))

    def of_child(self, number: int) -> dict[str, str]:
        """What the n-th child's environment says: a port of its own."""
        if self.port is None:
            return {}
        port = self.port + number if self.port else 0
        return {variable("metrics_port"): str(port), variable("metrics_host"): self.host}

    @contextmanager
    def _served(self, subject: Subject) -> Iterator[None]:
        from ..metrics.endpoint import Endpoint

        endpoint = Endpoint(subject, self.host, self.port or 0)
        endpoint.start()
        try:
            yield
        finally:
            endpoint.stop()


def _supervise(
    worker: Worker, command: list[str], processes: int, metrics: Metrics, *, far: bool
) -> int:
    from ..worker.burials import Burials, nobody
    from ..worker.supervisor import Supervisor

    burials, grace = Burials(worker.store), worker.settings.grace
    bury = nobody if far else burials
    supervisor = Supervisor(command, processes, grace, bury, metrics.of_child)
    with metrics.of_supervisor(supervisor, worker, burials.figures, far=far):
        return supervisor.run()


def _names(queues: str | None) -> list[str] | None:
    return None if queues is None else [name.strip() for name in queues.split(",")]


def _introduce(worker: Worker, place: object) -> None:
    """Every setting that is in force, in one line."""
    log.info(
        "worker %s on %s, queues: %s, tasks: %s, %s",
        worker.id,
        place,
        ", ".join(worker.queues) if worker.queues is not None else "all",
        ", ".join(worker.app.registry.names()) or "none",
        ", ".join(f"{f.name}={getattr(worker.settings, f.name)}" for f in fields(WorkerSettings)),
    )


CHILD_URL = "OUTLAST_CHILD_URL"  # how a supervisor passes on what was said with --url
OWN_ENVIRONMENT = {"app", "processes", "metrics_port", "metrics_host", "url", "server"}


def _child_secrets(url: str | None, server: str | None) -> dict[str, str]:
    """Addresses may hold passwords. Other users of a machine can read the arguments of a process,
    and not its environment."""
    addresses = {CHILD_URL: url, variable("server"): server}
    return {name: value for name, value in addresses.items() if value}


def _child(ctx: click.Context, schema: str | None) -> list[str]:
    """The command of one of several processes: what was said here, and that it is alone."""
    said = [sys.executable, "-m", "outlast", "worker", ctx.params["app"], "--processes", "1"]
    values = {**ctx.params, "schema": schema}
    for param in ctx.command.params:
        name = str(param.name)
        placed = name == "schema" and values[name]
        given = ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if not (placed or given) or name in OWN_ENVIRONMENT:
            continue
        if isinstance(values[name], bool):
            said.append((param.opts if values[name] else param.secondary_opts)[0])
        else:
            said += [param.opts[0], str(values[name])]
    return said


def strangers(environ: Mapping[str, str]) -> list[str]:
    """Variables that look like a misspelt setting. Others that start with OUTLAST_ are none of
    our business: some platforms set them by themselves."""
    settings = (WorkerSettings, StoreSettings, RetentionSettings, ServiceSettings)
    known = {variable(spec.name) for kind in settings for spec in fields(kind)}
    known |= {variable(name) for name in ("url", "schema", "queues", "processes", "host", "port")}
    known |= {variable(name) for name in ("log_format", "log_level", "lifeline", "instance")}
    known |= {variable(name) for name in ("metrics_port", "metrics_host", "blobs", "child_url")}
    return [
        f"{name} is no setting of Outlast and has no effect; did you mean {close[0]}?"
        for name in sorted(environ)
        if name.startswith("OUTLAST_") and name not in known and not name.startswith(PLATFORM)
        if (close := get_close_matches(name, known, 1, 0.85))
    ]
