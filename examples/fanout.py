"""Fan-out and fan-in: a thousand files are read in parallel, and one job adds up their words.

    python fanout.py add FOLDER    one job for each *.txt in it, and one after all of them
    python fanout.py work          runs jobs until Ctrl-C
    python fanout.py show          shows the progress, and the sum

All jobs are inserted in one transaction. The job that ends last starts the sum in its own
finishing transaction, so there is no moment at which a crash could lose it.
`ctx.results()` reads a page at a time: a sum of very many files needs no more memory than one of a
few. Kill workers with `kill -9` as often as you like: every file is in the sum, and none twice.
"""

from __future__ import annotations

import sys
from pathlib import Path

from outlast import Context, Outlast, group

ol = Outlast("sqlite:///fanout.db")


@ol.task
def count_words(path: str) -> int:
    return len(Path(path).read_text("utf-8").split())


@ol.task
def add_up(ctx: Context) -> dict[str, int]:
    files = words = 0
    for result in ctx.results():
        files, words = files + 1, words + result
    return {"files": files, "words": words}


def add(folder: str) -> None:
    files = sorted(Path(folder).glob("*.txt"))
    jobs = ol.enqueue(group(*(count_words.job(str(file)) for file in files)).then(add_up.job()))
    print(f"{len(jobs)} jobs in flow {jobs[0].flow}")


def show() -> None:
    for flow in reversed(ol.flows()):
        print(f"{flow.state}: {flow.ended} of {flow.total}")
    for job in ol.jobs(task="add_up"):
        print(job.result)


def main(words: list[str]) -> None:
    match words:
        case ["add", folder]:
            add(folder)
        case ["work"]:
            ol.worker().run()
        case ["show"]:
            show()
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
