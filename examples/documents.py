"""A document pipeline of two stages: the first one's result survives a failure of the second.

    python documents.py add a.txt b.txt    one flow for each document: extract, then refine
    python documents.py work               runs jobs until Ctrl-C
    python documents.py show               shows each document's flow and results

Each stage is a job with a result of its own, and `refine` reads that of `extract` by
`ctx.results()`. A refinement that becomes dead (write "unclear" in a document) leaves a flow whose
state is "partial": its extract can be read, and `outlast retry --flow ID` runs only failed jobs.
Kill a worker in either stage with `kill -9`: the stage runs again, the one before it does not.
"""

from __future__ import annotations

import sys
from pathlib import Path

from outlast import Context, Flow, Outlast, Permanent

ol = Outlast("sqlite:///documents.db")


@ol.task
def extract(path: str, ctx: Context) -> list[str]:
    """Extract the words of a document, slowly."""
    print(f"extracting {path}, attempt {ctx.attempt}", flush=True)
    pause(ctx)
    return Path(path).read_text("utf-8").split()


@ol.task
def refine(ctx: Context) -> dict[str, int]:
    """Count the occurrences of each word."""
    print(f"refining, attempt {ctx.attempt}", flush=True)
    pause(ctx)
    (words,) = ctx.results()
    if "unclear" in words:
        raise Permanent("a document must be clear")
    return {word: words.count(word) for word in sorted(set(words))}


def pause(ctx: Context) -> None:
    """Leave time to kill the worker."""
    if ctx.cancelled.wait(0.5):
        raise InterruptedError("asked to stop")


def add(paths: list[str]) -> None:
    """Store both stages of every document in one transaction."""
    flows = []
    for path in paths:
        flow = Flow(path)
        extracted = flow.add(extract.job(path))
        flow.add(refine.job(), after=extracted)
        flows.append(flow)
    print(f"{len(ol.enqueue(*flows))} jobs")


def show() -> None:
    for flow in reversed(ol.flows()):
        first, second = ol.flow_jobs(flow.id)
        print(f"{flow.name}: {flow.state}, words {first.result}, counted {second.result}")


def main(words: list[str]) -> None:
    match words:
        case ["add", *paths] if paths:
            add(paths)
        case ["work"]:
            ol.worker().run()
        case ["show"]:
            show()
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
