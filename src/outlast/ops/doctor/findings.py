"""A finding of the doctor: a name, the facts, and advice."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    name: str
    sentence: str
    advice: str
    problem: bool = True  # False: only a notice
