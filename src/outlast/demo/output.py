"""Output of the demo: a live display in a terminal, plain lines elsewhere, and the summary."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from .check import DemoVerdict
from .run import DemoProgress, Watch

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


@contextmanager
def progress_display(console: Console) -> Iterator[Watch]:
    """A progress display that this console supports."""
    if not console.is_terminal:
        yield PlainProgress(console)
        return
    from rich.live import Live

    picture = LiveProgress()
    with Live(picture, console=console, refresh_per_second=8):
        yield picture.update


class PlainProgress:
    """One line a second, for logs."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._next = 0.0

    def __call__(self, now: DemoProgress) -> None:
        if now.seconds >= self._next or not now.unfinished:
            self._next = now.seconds + 1.0
            self._console.print(
                f"{now.seconds:5.1f} s  {now.succeeded:,} of {now.succeeded + now.unfinished:,}"
                f" succeeded, {now.kills} kills"
            )


class LiveProgress:
    """A bar, the live workers, and the last ones that died."""

    def __init__(self) -> None:
        self._now: DemoProgress | None = None
        self._dead: deque[int] = deque(maxlen=5)

    def update(self, now: DemoProgress) -> None:
        self._now = now
        if now.killed is not None:
            self._dead.appendleft(now.killed)

    def __rich__(self) -> RenderableType:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        now = self._now
        if now is None:
            return Text("enqueueing …", style="dim")
        total = now.succeeded + now.unfinished
        head = Table.grid(padding=(0, 2))
        head.add_row(
            ProgressBar(total=total, completed=now.succeeded, width=40),
            f"{now.succeeded:,} of {total:,} succeeded",
            f"{now.seconds:.0f} s",
        )
        living = Text.assemble(("working  ", "dim"), ("  ".join(map(str, now.workers)), "green"))
        dead = Text.assemble(
            ("SIGKILL  ", "dim"), ("  ".join(map(str, self._dead)), "red strike"),
            (f"  {now.kills} so far" if now.kills else "", "red"),
        )  # fmt: skip
        return Group(head, living, dead)


def table(verdict: DemoVerdict) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    made.add_column(style="bold")
    made.add_column(justify="right")
    made.add_column(style="dim")
    for name, value, remark in _rows(verdict):
        bad = name in _MUST_BE_ZERO and value != "0"
        made.add_row(name, Text(value, "bold red" if bad else ""), remark)
    return made


_MUST_BE_ZERO = {"lost", "dead", "stuck", "accepted twice", "unproven"}


def _rows(verdict: DemoVerdict) -> Iterator[tuple[str, str, str]]:
    yield "enqueued", f"{verdict.enqueued:,}", f"and {verdict.follow_ups:,} follow-up jobs"
    yield "succeeded", f"{verdict.succeeded:,}", f"in {verdict.seconds:.1f} s"
    yield "lost", f"{verdict.lost:,}", "enqueued, and not in the database"
    yield "dead", f"{verdict.dead:,}", ""
    yield "stuck", f"{verdict.stuck:,}", "not ended"
    yield "accepted twice", f"{verdict.accepted_twice:,}", "two results for one job"
    yield "unproven", f"{verdict.unproven:,}", "a result without a run"
    yield "kills survived", f"{verdict.kills:,}", f"{verdict.taken_over:,} running jobs interrupted"
    yield (
        "attempts again", f"{verdict.repeated:,}",
        f"{verdict.failed:,} failed as planned; the others were interrupted",
    )  # fmt: skip
    for name, share in (("recovery p50", 0.5), ("recovery p99", 0.99)):
        value = verdict.recovered_within(share)
        yield (
            name,
            "–" if value is None else f"{value:.2f} s",
            "from SIGKILL until its jobs ran again",
        )


def notes(verdict: DemoVerdict) -> str:
    """How it was checked, and what the figures depend on."""
    return (
        "How this was checked: each handler appended its attempts to its own file. Every enqueued\n"
        "job is in the database and has ended; every result is that of an attempt\n"
        "whose end is in the file; every order has exactly one receipt, which is enqueued by the\n"
        "acceptance of its result and by nothing else.\n"
        "A dead worker is detected by the lock that it held, with the default settings of\n"
        "workers. A lost host would be detected by its expired lease, after 15 s."
    )
