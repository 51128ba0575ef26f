"""Text that jobs or workers wrote passes for no line of ours, and no terminal obeys it."""

from __future__ import annotations

import re

from outlast import Outlast
from outlast.ops import workers as worker_ops
from tests.cli.conftest import Commands, work_off
from tests.support import Database

EVIL = "nice\nstate       succeeded\rworker  \x1b[2Jme \x9b31m \u202edneirf\u2028[red]x[/red]"
NEVER = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069]")


def spoofed(text: str) -> list[str]:
    """Lines that begin like ours and are not, and what a terminal would obey."""
    lines = [line for line in text.splitlines() if re.match(r"(state +succeeded|worker +me)", line)]
    return [*lines, *NEVER.findall(text)]


async def test_no_text_of_a_job_passes_for_a_line_of_outlast_job(
    run: Commands, ol: Outlast
) -> None:
    """R233: task, arguments, result, error, traceback, key, reason, logs, steps, worker, host."""

    @ol.task(max_attempts=1)
    def fail(text: str) -> None:
        raise ValueError(text)

    job = await fail.using(key=f"k {EVIL}".replace("\n", " ")[:20]).aenqueue(EVIL)
    await work_off(ol)
    out = run("job", job.id).out
    assert "\nstate       dead\n" in out
    assert spoofed(out) == []
    assert "[red]x[/red]" in out  # and it is not taken for colours


def test_no_text_in_a_row_passes_for_a_line_of_any_command(
    run: Commands, ol: Outlast, database: Database
) -> None:
    """R233: put there by hand, past all checks; JSON is escaped too."""
    greet = ol.task(name="greet")(lambda: None)
    job = greet.enqueue()
    card = ol.worker().registration_row() | {"id": "w1"}
    ol.store.run(worker_ops.register, card)
    table = "outlast_" if database.is_sqlite else ""
    mark = "?" if database.is_sqlite else "%s"
    with database.connect() as connection:
        connection.execute(
            f"UPDATE {table}job SET task = {mark}, queue = {mark} WHERE id = {mark}",
            (EVIL, EVIL, job.id),
        )
        connection.execute(
            f"UPDATE {table}worker SET host = {mark}, version = {mark}", (EVIL, EVIL)
        )
    commands = [
        ("job", job.id),
        ("jobs",),
        ("queues",),
        ("workers",),
        ("top", "--once"),
        ("doctor",),
    ]
    for command in commands:
        answer = run(*command)
        assert spoofed(answer.out + answer.err) == [], command
        assert not NEVER.search(run(*command, "--json").out) if command[0] != "top" else True
