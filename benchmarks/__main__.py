"""python -m benchmarks run|report: see the module's own words."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import click

from benchmarks import services
from benchmarks.contender import OURS, PEER, Contender, chosen, found_in
from benchmarks.environments import Missing, equipped
from benchmarks.ground import Ground
from benchmarks.options import plan_options, print_results
from benchmarks.rounds import Plan, measure
from benchmarks.show import line

PEERS = Path(__file__).parent / "contenders"
CACHE = Path(".bench")
PAGE = Path("docs/explanation/benchmarks.md")


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
def main() -> None:
    """Outlast side by side with its peers."""
    # Asked to stop, it still takes away what it made.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


def everybody() -> list[Contender]:
    return [*found_in(OURS), *found_in(PEERS)]


def names(ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> list[str]:
    asked = [name for each in given for name in each.split(",") if name]
    if unknown := [name for name in asked if not chosen(everybody(), [name])]:
        known = ", ".join(sorted({contender.name for contender in everybody()}))
        raise click.BadParameter(f"{unknown[0]!r} is none of: {known}.")
    return asked


@main.command()
@plan_options
@click.option(
    "--contender", "wanted", metavar="NAME", multiple=True, callback=names,
    help="Who takes part: outlast, huey/redis, /sqlite …; else everybody.",
)  # fmt: skip
@click.option("--url", help="A PostgreSQL where databases may be made; else one of our own.")
@click.option("--out", type=click.Path(path_type=Path), default=CACHE / "results.json",
              show_default=True, help="Where everything is written, after each cell.")  # fmt: skip
@click.option("--fresh", is_flag=True, help="Make the peers' environments anew.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def run(
    plan: Plan, wanted: list[str], url: str | None, out: Path, fresh: bool, as_json: bool
) -> None:
    """Measure; show medians, spread and ratios."""
    contenders = chosen(everybody(), wanted)
    with grounds(contenders, url) as ground:
        taking_part = list(ready(contenders, ground, fresh))
        results = measure(plan, taking_part, ground, _say(line), keeping(out))
    click.echo(json.dumps(results, indent=2)) if as_json else print_results(results)
    click.echo(f"\nWritten to {out}", err=True)


@main.command()
@click.argument(
    "results", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@click.option("--page", type=click.Path(exists=True, path_type=Path), default=PAGE,
              show_default=True, help="The page whose results are replaced.")  # fmt: skip
def report(results: tuple[Path, ...], page: Path) -> None:
    """Write tables and pictures of RESULTS into the documentation."""
    from benchmarks.report import merged, write

    for path in write(merged([json.loads(path.read_text()) for path in results]), page):
        click.echo(path)


@contextmanager
def grounds(contenders: list[Contender], url: str | None) -> Iterator[Ground]:
    """Only the servers that somebody needs."""
    stores = {contender.store for contender in contenders}
    with ExitStack() as stack:
        if url is None and "postgres" in stores:
            url = stack.enter_context(services.postgres())
        redis = stack.enter_context(services.redis()) if "redis" in stores else None
        yield Ground((CACHE / "places").absolute(), url, redis, databases=True)


def ready(contenders: list[Contender], ground: Ground, fresh: bool) -> Iterator[Contender]:
    """Those who can take part; of the others, why not."""
    for contender in contenders:
        if not ground.has(contender.store):
            click.echo(f"{contender.label} is left out: there is no {contender.store}", err=True)
        elif contender.kind != PEER:
            yield contender
        else:
            try:
                yield equipped(contender, (CACHE / "venvs").absolute(), fresh)
            except Missing as missing:
                click.echo(f"{contender.label} is left out: {missing}", err=True)


def keeping(out: Path) -> Callable[[dict[str, Any]], None]:
    def keep(results: dict[str, Any]) -> None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(results, indent=2) + "\n")

    return keep


def _say(words: Callable[..., str]) -> Callable[..., None]:
    return lambda *said: click.echo(words(*said), err=True)


if __name__ == "__main__":
    main(prog_name="python -m benchmarks")
