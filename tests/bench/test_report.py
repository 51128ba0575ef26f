"""Results in the documentation: tables and pictures of what was measured, and of nothing else."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from benchmarks.cells import CELLS
from benchmarks.plot import Bar, bars
from benchmarks.report import BEGIN, END, merged, write
from tests.support.processes import ROOT

PAGE = ROOT / "docs" / "explanation" / "benchmarks.md"


def results() -> dict[str, Any]:
    def contender(kind: str, name: str, durable: bool = True) -> dict[str, Any]:
        facts = {"kind": kind, "name": name, "store": "postgres", "durable": durable}
        return {**facts, "durability": f"as {name} says", "settings": "", "versions": {name: "1.0"}}

    postgres = {"server_version": "18.1 (x)", "fsync": "on", "synchronous_commit": "on"}
    postgres |= {"full_page_writes": "on", "shared_buffers": "1GB", "max_wal_size": "4GB"}
    machine = {"processor": "P", "cores": 2, "memory_gb": 1, "system": "L", "python": "3"}
    return {
        "conditions": {
            "measured_at": "2026-01-02T03:04:05Z", "outlast": "0", "rounds": 2, "concurrency": 100,
            "machine": machine, "postgres": postgres, "redis": None,
            "sqlite": {"version": "3", "file_system": "ext4"},
        },
        "contenders": {
            "outlast/postgres": contender("outlast", "outlast"),
            "bare/postgres": contender("bare", "bare"),
            "careless/postgres": contender("peer", "careless", durable=False),
        },
        "cells": {
            "drain": {
                "about": "one process", "jobs": 20000, "left_out": {},
                "figures": [{"name": "rate", "unit": "jobs/s", "more": True}],
                "samples": {
                    "outlast/postgres": [{"rate": 700.0}, {"rate": 900.0}],
                    "bare/postgres": [{"rate": 1000.0}, {"rate": 1000.0}],
                    "careless/postgres": [None],
                },
                "failed": {"careless/postgres": "it ended"},
            }
        },
    }  # fmt: skip


def test_what_stands_between_the_marks_is_replaced(tmp_path: Path) -> None:
    page = tmp_path / "benchmarks.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    for _ in range(2):  # again: nothing piles up
        written = write(results(), page)
    text = page.read_text()
    assert text.startswith(f"before\n{BEGIN}\n") and text.endswith(f"{END}\nafter\n")
    assert "old" not in text
    assert "| outlast/postgres | rate, jobs/s | 800 | 700–900 | 0.80 |  |  |" in text
    assert "- careless/postgres: it ended" in text
    assert "PostgreSQL 18.1: fsync on, synchronous_commit on" in text
    assert [path.name for path in written] == ["benchmarks.md", "drain.svg"]
    assert (tmp_path / "benchmarks" / "drain.svg").exists()


def test_of_several_runs_the_last_one_counts() -> None:
    first, second = results(), results()
    second["contenders"] = {"new/redis": {}}
    second["cells"] = {"drain": {"jobs": 1}, "latency": {"jobs": 2}}
    together = merged([first, second])
    assert together["cells"] == second["cells"]
    assert len(together["contenders"]) == 4
    assert len(first["contenders"]) == 3  # what was read stays as it was


def test_a_page_without_a_place_is_left_alone(tmp_path: Path) -> None:
    page = tmp_path / "other.md"
    page.write_text("nothing to replace\n")
    with pytest.raises(ValueError, match="no place for results"):
        write(results(), page)
    assert page.read_text() == "nothing to replace\n"


def test_bars_are_as_long_as_what_they_show() -> None:
    found = [
        Bar("a <b>", "outlast", 100.0, 90.0, 200.0, "100"),
        Bar("c", "less", 50.0, 50.0, 50.0, "50"),
    ]
    svg = ElementTree.fromstring(bars("drain & more", "jobs/s", found))
    space = "{http://www.w3.org/2000/svg}"
    widths = [float(rect.get("width", 0)) for rect in svg.iter(f"{space}rect")][1:3]
    assert widths[0] == pytest.approx(2 * widths[1])
    texts = [text.text for text in svg.iter(f"{space}text")]
    assert "a <b>" in texts and "drain & more, jobs/s" in texts
    assert "peer, less durable" in texts and "bare database" not in texts


def test_every_cell_is_told_of() -> None:
    """R202"""
    told = re.findall(r"^\| `([\w-]+)` \|", PAGE.read_text(), re.MULTILINE)
    assert told == list(CELLS)


def test_the_page_has_a_place_for_results() -> None:
    assert PAGE.read_text().count(BEGIN) == PAGE.read_text().count(END) == 1
