"""A crawler that adds its own jobs, and a summary when all pages are crawled.

    python crawler.py start    crawl the site below, beginning at /
    python crawler.py work     runs jobs until Ctrl-C
    python crawler.py show     shows the state, and the summary

The number of pages is known only at the end. Each page enqueues the pages that it links to with
`join=True`: followers of the page, here the summary, then wait for them, too. They are inserted in
the transaction in which the page succeeds, so no kill leaves a page whose links were forgotten, and
the summary starts once, after all of them. A key for each page keeps two links from fetching it
twice.
"""

from __future__ import annotations

import sys

from outlast import Call, Context, Outlast, chain

ol = Outlast("sqlite:///crawler.db")

# A site of 40 pages: each links to the next two, to some page before it, and home.
SITE = {
    f"/{n or ''}": [f"/{m or ''}" for m in (2 * n + 1, 2 * n + 2, n // 2, 0) if m < 40]
    for n in range(40)
}


@ol.task
def fetch(page: str, crawl: str, ctx: Context) -> dict[str, int | str]:
    if ctx.cancelled.wait(0.1):  # the network
        raise InterruptedError("asked to stop")
    print(f"fetched {page}, attempt {ctx.attempt}", flush=True)
    ctx.enqueue(*(visit(link, crawl) for link in SITE[page]), join=True)
    return {"page": page, "links": len(SITE[page])}


@ol.task
def summary(ctx: Context) -> dict[str, int]:
    found = {result["page"]: result["links"] for result in ctx.results()}
    return {"pages": len(found), "links": sum(found.values())}


def visit(page: str, crawl: str) -> Call:
    return fetch.using(key=f"{crawl} {page}").job(page, crawl)


def main(words: list[str]) -> None:
    match words:
        case ["start"]:
            print(ol.enqueue(chain(visit("/", "first"), summary.job()))[0].flow)
        case ["work"]:
            ol.worker().run()
        case ["show"]:
            for flow in ol.flows():
                print(f"{flow.state}: {flow.ended} of {flow.total}")
            for job in ol.jobs(task="summary"):
                print(job.result)
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
