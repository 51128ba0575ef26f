"""Progress of a campaign: a live line on a terminal, else a line every few seconds. It goes to
standard error, so that standard output has only the result.

This module must not start threads: the process that shows progress also forks.
"""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any, Self, TextIO

from .results import CampaignResults

LINE_INTERVAL_S = 5.0  # seconds between lines where they cannot be rewritten
REFRESH_INTERVAL_S = 0.2


class CampaignProgress:
    def __init__(
        self, points: int | None, budget: float | None, stream: TextIO | None = None
    ) -> None:
        self.points, self.budget = points, budget
        self.stream = stream or sys.stderr
        self._next = time.monotonic() + LINE_INTERVAL_S
        self._live: Any = None

    def __enter__(self) -> Self:
        if self.stream.isatty():
            from rich.console import Console
            from rich.live import Live

            console = Console(file=self.stream, highlight=False, markup=False)
            self._live = Live(
                console=console,
                auto_refresh=False,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()
            self._next = 0.0
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, results: CampaignResults) -> None:
        now = time.monotonic()
        if now < self._next:
            return
        if self._live is not None:
            self._live.update(self._bar(results, now), refresh=True)
            self._next = now + REFRESH_INTERVAL_S
        else:
            print(progress_line(results, now), file=self.stream, flush=True)
            self._next = now + LINE_INTERVAL_S

    def _bar(self, results: CampaignResults, now: float) -> Any:
        from rich.columns import Columns
        from rich.progress_bar import ProgressBar

        share = self.share(results, now)
        return Columns(
            [ProgressBar(1.0, share, width=30), progress_line(results, now)], padding=(0, 2)
        )

    def share(self, results: CampaignResults, now: float) -> float:
        """The completed share, by time or by count, whichever is larger."""
        shares = [0.0]
        if self.budget:
            shares.append((now - results.began) / self.budget)
        if self.points:
            shares.append(results.total(results.goal) / self.points)
        return min(1.0, max(shares))


def progress_line(results: CampaignResults, now: float) -> str:
    counts = ", ".join(f"{results.total(what):,} {what}" for what in results.columns)
    violations = len(results.violations)
    seconds = now - results.began
    return f"{results.campaign}: {counts}, {violations:,} violations, {seconds:.0f} s"
