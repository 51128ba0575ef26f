"""What is measured, by name, in the order in which it is told."""

from benchmarks.cells import cost, crowded, drain, enqueue, flows, latency, recovery
from benchmarks.cells.cell import Cell, Figure

CELLS: dict[str, Cell] = {
    cell.name: cell
    for part in (drain, flows, enqueue, latency, recovery, crowded, cost)
    for cell in part.CELLS
}
# What is over within minutes, and what one asks for first.
QUICK = ["drain", "drain-2", "enqueue", "enqueue-bulk", "enqueue-within", "enqueue-8", "latency"]

__all__ = ["CELLS", "QUICK", "Cell", "Figure"]
