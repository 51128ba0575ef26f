"""An outbox: orders and the messages about them commit together; a batch task publishes them.

    python relay.py add 20          adds 20 orders, each with its message, in one transaction
    python relay.py add 1 --long    adds one that the broker refuses
    python relay.py work            publishes until Ctrl-C
    python relay.py show            shows the jobs, and the broker's messages

The broker is a file, broker.log, and is down while a file broker.down exists. Kill the relay with
`kill -9` in the middle of a batch: no message is lost, and one published twice keeps its id.
"""

from __future__ import annotations

import sqlite3
import sys
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from outlast import BatchContext, BatchFailed, DependencyDown, Outlast, Permanent

FILE, BROKER, DOWN = "relay.db", Path("broker.log"), Path("broker.down")
ol = Outlast(f"sqlite:///{FILE}")


@dataclass(frozen=True)
class Message:
    order: int
    text: str


@ol.task(batch=100, wait=0.1)
def publish(messages: list[Message], ctx: BatchContext) -> None:
    if DOWN.exists():
        raise DependencyDown("the broker is down")  # all jobs wait, uncharged
    print(f"publishing {len(messages)}", flush=True)
    refused: dict[int, Permanent] = {}
    with BROKER.open("a", buffering=1) as broker:  # one connection for all
        for index, message in enumerate(messages):
            if len(message.text) > 80:
                refused[index] = Permanent("too long for the broker")
            else:
                broker.write(f"{ctx.items[index].job.id} {message.text}\n")
                time.sleep(0.01)
    if refused:
        raise BatchFailed(refused)  # only these; the others are published


def add(number: int, text: str) -> None:
    ol.migrate()
    with closing(sqlite3.connect(FILE)) as conn, conn:  # the inner one commits
        conn.execute("CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY)")
        for _ in range(number):
            order = conn.execute("INSERT INTO orders DEFAULT VALUES").lastrowid or 0
            publish.using(conn=conn).enqueue(Message(order, text))


def show() -> None:
    states = {state: number for state, number in ol.counts().items() if number}
    got = [line.split()[0] for line in BROKER.read_text().splitlines()] if BROKER.exists() else []
    print({"messages": states, "published": len(set(got)), "twice": len(got) - len(set(got))})


def main(words: list[str]) -> None:
    match words:
        case ["add", number]:
            add(int(number), "an order came in")
        case ["add", number, "--long"]:
            add(int(number), "a long story " * 10)
        case ["work"]:
            ol.worker().run()
        case ["show"]:
            show()
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
