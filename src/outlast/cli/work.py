"""Carrying out jobs: `outlast worker`. Its flags are the fields of `WorkerSettings`."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import Field, fields
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from ..model.settings import RetentionSettings, StoreSettings, WorkerSettings
from .apps import find_app
from .places import placed

if TYPE_CHECKING:
    from ..worker.worker import Worker

F = TypeVar("F", bound=Callable[..., Any])

log = logging.getLogger("outlast.worker")

LEVELS = ("debug", "info", "warning", "error")


def setting_options(command: F) -> F:
    """One option for each setting of a worker: its name, type, meaning and default are the
    field's, and `WorkerSettings` itself judges the value."""
    for spec in reversed(fields(WorkerSettings)):
        command = _option(spec)(command)
    return command


def _option(spec: Field[Any]) -> Callable[[F], F]:
    flag = f"--{spec.name.replace('_', '-')}"
    about = str(spec.metadata["about"])
    return click.option(
        f"{flag}/--no-{flag[2:]}" if isinstance(spec.default, bool) else flag,
        spec.name,
        type=type(spec.default),
        default=spec.default,
        envvar=variable(spec.name),
        show_default=True,
        show_envvar=True,
        help=f"{about[0].upper()}{about[1:]}.",
    )


def _was_said(ctx: click.Context, name: str) -> bool:
    """By a flag or by the environment: what was not may follow from what was."""
    return ctx.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT


def variable(name: str) -> str:
    return f"OUTLAST_{name.upper()}"


@click.command(
    epilog="""
    \b
    Examples: outlast worker shop.tasks:ol
              outlast worker shop.tasks:ol --queues mail,docs --concurrency 8 --processes 4

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
@setting_options
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    envvar="OUTLAST_LOG_FORMAT",
    show_default=True,
    show_envvar=True,
    help="How log lines look.",
)
@click.option(
    "--log-level",
    type=click.Choice(LEVELS, case_sensitive=False),
    default="info",
    envvar="OUTLAST_LOG_LEVEL",
    show_default=True,
    show_envvar=True,
    help="The least that is logged.",
)
@placed
@click.pass_context
def worker(
    ctx: click.Context, /, app: str, queues: str | None, processes: int, **given: Any
) -> None:
    """Carry out the jobs of APP until told to stop.

    APP is module:attr, importable from the working directory; a module that makes exactly one
    Outlast may stand alone.
    """
    from ..worker.logs import set_up

    url, schema = given.pop("url"), given.pop("schema")
    level, format = given.pop("log_level"), given.pop("log_format")
    given = {name: value for name, value in given.items() if _was_said(ctx, name)}
    WorkerSettings.of({}, **given)  # what is wrong with them is said before anything is loaded
    set_up(level, format)
    made = find_app(app, url, schema).worker(_names(queues), **given)
    for stranger in strangers(os.environ):
        log.warning(stranger)
    if processes > 1:
        from ..worker.burials import Burials
        from ..worker.supervisor import supervise

        command, burials = _child(ctx, url, schema), Burials(made.store)
        ctx.exit(supervise(command, processes, made.settings.grace, burials))
    _introduce(made)
    made.run()


def _names(queues: str | None) -> list[str] | None:
    return None if queues is None else [name.strip() for name in queues.split(",")]


def _introduce(worker: Worker) -> None:
    """Every setting that is in force, in one line."""
    log.info(
        "worker %s on %s, queues: %s, tasks: %s, %s",
        worker.id,
        worker.store.address,
        ", ".join(worker.queues) if worker.queues is not None else "all",
        ", ".join(worker.app.registry.names()) or "none",
        ", ".join(f"{f.name}={getattr(worker.settings, f.name)}" for f in fields(WorkerSettings)),
    )


def _child(ctx: click.Context, url: str | None, schema: str | None) -> list[str]:
    """The command of one of several processes: what was said here, and that it is alone."""
    said = [sys.executable, "-m", "outlast", "worker", ctx.params["app"], "--processes", "1"]
    values = {**ctx.params, "url": url, "schema": schema}
    for param in ctx.command.params:
        name = str(param.name)
        placed = name in {"url", "schema"} and values[name]
        given = ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if not (placed or given) or name in {"app", "processes"}:
            continue
        if isinstance(values[name], bool):
            said.append((param.opts if values[name] else param.secondary_opts)[0])
        else:
            said += [param.opts[0], str(values[name])]
    return said


def strangers(environ: Mapping[str, str]) -> list[str]:
    """Variables that look like a misspelt setting. Others that start with OUTLAST_ are none of
    our business: some platforms set them by themselves."""
    settings = (WorkerSettings, StoreSettings, RetentionSettings)
    known = {variable(spec.name) for kind in settings for spec in fields(kind)}
    known |= {variable(name) for name in ("url", "schema", "queues", "processes")}
    known |= {variable(name) for name in ("log_format", "log_level", "lifeline", "instance")}
    return [
        f"{name} is no setting of Outlast and has no effect; did you mean {close[0]}?"
        for name in sorted(environ)
        if name.startswith("OUTLAST_") and name not in known
        if (close := get_close_matches(name, known, 1, 0.85))
    ]
