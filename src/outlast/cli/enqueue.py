"""Enqueueing a job: `outlast enqueue`."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import click

from ..model.errors import InvalidOption
from .apps import find_app
from .database_options import json_option, open_client, with_database_options
from .errors import as_usage_errors
from .output import print_json
from .parsing import parse_duration, parse_duration_or_time, parse_json_object, parse_time

if TYPE_CHECKING:
    from ..client.client import Outlast
    from ..model.task import TaskDefinition
    from ..webhooks.webhook import Webhook


@click.command(
    epilog="""
    \b
    Examples: outlast enqueue extract --args '{"doc": 7}' --delay 5m
              outlast enqueue extract --app shop.tasks:ol --args '{"doc": 7}' --key doc-7
              outlast enqueue index --args '{"doc": 7}' --key doc-7 --debounce 5 --max-wait 1m
              outlast enqueue send_mail --args '{"to": "a@b.c"}' --queue mail --lane acme
    """
)
@click.argument("task")
@click.option(
    "--app", metavar="APP", help="App whose task checks the arguments and sets the options."
)
@click.option(
    "--args",
    "arguments",
    callback=parse_json_object,
    default="{}",
    show_default=True,
    metavar="JSON",
    help="Arguments as a JSON object; - reads standard input.",
)
@click.option("--queue", metavar="NAME", help="Default: the task's queue, else default.")
@click.option(
    "--lane", metavar="NAME", help="Lane of a limited queue; default: as the task or queue says."
)
@click.option("--priority", type=int, help="From -100 to 100; higher starts first.")
@click.option("--tenant", metavar="NAME", help="Tenant of the job.")
@click.option("--key", metavar="TEXT", help="Idempotency key: a repeat returns the same job.")
@click.option(
    "--unique",
    metavar="MODE|SPAN",
    help="One job per key while waiting, while active, or in a period: 10m.",
)
@click.option(
    "--debounce",
    callback=parse_duration,
    metavar="SPAN",
    help="Start this long after the last call.",
)
@click.option(
    "--max-wait", callback=parse_duration, metavar="SPAN", help="Maximum delay by debounced calls."
)
@click.option(
    "--delay", callback=parse_duration, metavar="SPAN", help="Start after this: 30, 5m, 2h, 1d."
)
@click.option(
    "--at", callback=parse_time, metavar="TIME", help="Start at this time: 2030-01-31T12:00:00Z."
)
@click.option(
    "--expires",
    callback=parse_duration_or_time,
    metavar="SPAN|TIME",
    help="Cancel the job unless it has started by then.",
)
@click.option(
    "--timeout", callback=parse_duration, metavar="SPAN", help="Maximum run time of one attempt."
)
@click.option("--max-attempts", type=int, help="Maximum failures.")
@click.option("--max-crashes", type=int, help="Maximum worker crashes.")
@click.option(
    "--tell", multiple=True, metavar="NAME", help="Webhook of APP to notify of the end; repeatable."
)
@json_option
@with_database_options
def enqueue(
    task: str,
    app: str | None,
    arguments: dict[str, Any],
    tell: tuple[str, ...],
    as_json: bool,
    **given: Any,
) -> None:
    """Enqueue one job of TASK and print its id.

    Without --app the arguments are stored unchecked; the worker that runs the task validates them.
    """
    from ..model.options import Options
    from ..model.task import Call
    from ..model.uniqueness import unique_fields

    url, schema = given.pop("url"), given.pop("schema")
    with ExitStack() as stack:
        if app is not None:
            ol = stack.enter_context(find_app(app, url, schema))
            definition = ol.registry[task]
            arguments = _parse_arguments(definition, arguments)
        else:
            ol = stack.enter_context(open_client(url, schema))
            with as_usage_errors():
                definition = _untyped_definition(task, ol.tenant_required)
        webhooks = _webhooks(ol, tell, app) or None
        with as_usage_errors():
            options = Options(**given, tell=webhooks)
            unique_fields(options)  # rejects a mode without a key
        ol._refresh_bounds()
        (job,) = ol.enqueue(Call(definition, options, (), arguments))
    if as_json:
        print_json(job)
    else:
        click.echo(job.id)


def _webhooks(ol: Outlast, names: tuple[str, ...], app: str | None) -> list[Webhook]:
    """The app's webhooks by name; the app defines their URLs and signing secrets."""
    for name in names:
        if name not in ol.webhooks:
            reason = f"names no webhook of the app: {name!r}" if app else "needs --app"
            raise InvalidOption(option="tell", reason=reason)
    return [ol.webhooks[name] for name in names]


def _parse_arguments(definition: TaskDefinition, arguments: dict[str, object]) -> dict[str, object]:
    """Decode the arguments by the task's annotations; JSON has no dates."""
    import json

    return definition.arguments.decode(json.dumps(arguments))


def _untyped_definition(task: str, tenant_required: bool) -> TaskDefinition:
    """A task that is defined elsewhere; it accepts any arguments that can be stored."""
    from ..model.task import TaskDefinition

    def handler(**arguments: object) -> None: ...

    return TaskDefinition(name=task, function=handler, tenant_required=tenant_required)
