"""A sign-up and its welcome mail commit together, or not at all.

    python signup.py add ada@example.org             a row and a job, in one transaction
    python signup.py add bob@example.org --wait 60   sleeps before the commit: kill it there
    python signup.py work                            runs jobs until Ctrl-C
    python signup.py show                            shows users and mails

Kill any of them with `kill -9` at any moment: there is never a user without a mail job, and never a
mail for a user that does not exist.
"""

from __future__ import annotations

import sqlite3
import sys
import time
from contextlib import closing

from outlast import Context, Outlast

FILE = "signup.db"
ol = Outlast(f"sqlite:///{FILE}")


@ol.task
def welcome(email: str, ctx: Context) -> None:
    """Mails are sent at least once; the job's id lets the mail server drop a second one."""
    for part in ("connecting", "sending", "sent"):
        if ctx.cancelled.wait(0.2):
            raise InterruptedError(part)
        print(f"{part}: {email}, message id {ctx.job.id}, attempt {ctx.attempt}", flush=True)


def connect() -> sqlite3.Connection:
    ol.migrate()
    conn = sqlite3.connect(FILE)
    conn.execute("CREATE TABLE IF NOT EXISTS user (email TEXT PRIMARY KEY)")
    return conn


def add(email: str, wait: float) -> None:
    with closing(connect()) as conn, conn:  # the inner one commits
        conn.execute("INSERT INTO user VALUES (?)", (email,))
        welcome.using(conn=conn).enqueue(email)
        print("written, not committed", flush=True)
        time.sleep(wait)
    print("committed")


def show() -> None:
    with closing(connect()) as conn:
        users = [email for (email,) in conn.execute("SELECT email FROM user ORDER BY email")]
    mails = {job.args["email"]: str(job.state) for job in ol.jobs()}
    print({"users": users, "mails": mails})


def main(words: list[str]) -> None:
    match words:
        case ["add", email]:
            add(email, wait=0)
        case ["add", email, "--wait", seconds]:
            add(email, wait=float(seconds))
        case ["work"]:
            ol.worker().run()
        case ["show"]:
            show()
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
