"""A program with a webhook, for worker processes and the command line."""

from __future__ import annotations

import os

from outlast import Outlast, Permanent, Retry

ol = Outlast()
hook = ol.webhook(
    "billing",
    url=os.environ["BILLING_URL"],
    secret=os.environ["BILLING_SECRET"],
    retry=Retry(max_attempts=50, base=0.05, cap=0.2),
)


@ol.task(tell=hook)
def add(a: int, b: int) -> int:
    return a + b


@ol.task
def give_up() -> None:
    raise Permanent("no")
