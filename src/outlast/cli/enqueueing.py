"""A job from the command line: `outlast enqueue`."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import click

from ..model.errors import InvalidOption
from .apps import find_app
from .failing import command_line_values
from .places import json_option, opened, placed
from .show import print_json
from .values import json_object, moment, span, span_or_moment

if TYPE_CHECKING:
    from ..bridge.webhook import Webhook
    from ..client import Outlast
    from ..model.task import Definition


@click.command(
    epilog="""
    \b
    Examples: outlast enqueue extract --args '{"doc": 7}' --delay 5m
              outlast enqueue extract --app shop.tasks:ol --args '{"doc": 7}' --key doc-7
    """
)
@click.argument("task")
@click.option(
    "--app", metavar="APP", help="Let this program's task check the arguments and set the options."
)
@click.option(
    "--args",
    "arguments",
    callback=json_object,
    default="{}",
    show_default=True,
    metavar="JSON",
    help="The arguments, a JSON object; - reads it from standard input.",
)
@click.option("--queue", metavar="NAME", help="Else the task's own, else default.")
@click.option("--priority", type=int, help="From -100 to 100; higher starts first.")
@click.option("--tenant", metavar="NAME", help="Whose job it is.")
@click.option("--key", metavar="TEXT", help="One job per key: a second one gets the first.")
@click.option("--delay", callback=span, metavar="SPAN", help="Start so much later: 30, 5m, 2h, 1d.")
@click.option("--at", callback=moment, metavar="MOMENT", help="Start then: 2030-01-31T12:00:00Z.")
@click.option(
    "--expires",
    callback=span_or_moment,
    metavar="SPAN|MOMENT",
    help="Not started by then, it is cancelled.",
)
@click.option("--timeout", callback=span, metavar="SPAN", help="How long one attempt may run.")
@click.option("--max-attempts", type=int, help="How often it may fail.")
@click.option("--max-crashes", type=int, help="How many workers it may cost.")
@click.option(
    "--tell", multiple=True, metavar="NAME", help="A webhook of APP that is told of its end."
)
@json_option
@placed
def enqueue(
    task: str,
    app: str | None,
    arguments: dict[str, Any],
    tell: tuple[str, ...],
    as_json: bool,
    **said: Any,
) -> None:
    """Enqueue one job of TASK and print its id.

    Without --app the arguments are stored as they are: whoever runs the task will judge them.
    """
    from ..model.options import Options
    from ..model.task import Call

    url, schema = said.pop("url"), said.pop("schema")
    with ExitStack() as stack:
        if app is not None:
            ol = stack.enter_context(find_app(app, url, schema))
            definition = ol.registry[task]
            arguments = _as_annotated(definition, arguments)
        else:
            ol = stack.enter_context(opened(url, schema))
            with command_line_values():
                definition = _unseen(task)
        told = _webhooks(ol, tell) or None
        with command_line_values():
            options = Options(**said, tell=told)
        (job,) = ol.enqueue(Call(definition, options, (), arguments))
    if as_json:
        print_json(job)
    else:
        click.echo(job.id)


def _webhooks(ol: Outlast, names: tuple[str, ...]) -> list[Webhook]:
    """By their names: where they are, and what they are signed with, is the program's to know."""
    for name in names:
        if name not in ol.webhooks:
            reason = f"names no webhook of the program: {name!r}" if ol.webhooks else "needs --app"
            raise InvalidOption(option="tell", reason=reason)
    return [ol.webhooks[name] for name in names]


def _as_annotated(definition: Definition, arguments: dict[str, Any]) -> dict[str, Any]:
    """JSON has no dates: what the task's annotations make of the text is what is enqueued."""
    import json

    return definition.arguments.decode(json.dumps(arguments))


def _unseen(task: str) -> Definition:
    """A task that is defined elsewhere. It takes anything that can be stored."""
    from ..model.task import Definition

    def anything(**arguments: Any) -> None: ...

    return Definition(name=task, function=anything)
