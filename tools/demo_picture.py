"""The picture of the demo in a terminal: `python -m tools.demo_picture` runs it, and draws it. The
machine should have nothing else to do: the figures are in the picture."""

from __future__ import annotations

import io
import re
from pathlib import Path

from rich.console import Console
from rich.text import Text

from outlast.demo.output import LiveProgress, table
from outlast.demo.run import DemoPlan, DemoProgress, run_demo

PICTURE = Path(__file__).parents[1] / "docs" / "images" / "demo.svg"
PLAN = DemoPlan(jobs=2000)
COLUMNS = 84
FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)  # of another site: the reader's own will do


def main() -> None:
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(Text("$ outlast demo --jobs 2000", "bold"))
    seen = list[DemoProgress]()
    with run_demo(PLAN, None, seen.append) as (verdict, log):
        if not verdict.ok:
            raise SystemExit(f"the demo found a fault:\n{log}")
        console.print(_at_half(seen))
        console.print(Text("…", "dim"))
        console.print(table(verdict))
    drawn = console.export_svg(title="outlast demo")
    PICTURE.write_text(FONTS.sub("", drawn), "utf-8")


def _at_half(seen: list[DemoProgress]) -> LiveProgress:
    """The display as it was when half of the jobs had succeeded."""
    display = LiveProgress()
    for now in seen:
        display.update(now)
        if now.succeeded >= PLAN.jobs / 2:
            break
    return display


if __name__ == "__main__":
    main()
