"""What a doctor tells: a name, what was seen, and what to do."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    name: str
    sentence: str
    advice: str
    problem: bool = True  # False: worth knowing, and nothing is wrong
