"""Retry policy: a value, and a pure function from failures to the next delay."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Self

from .errors import InvalidOption
from .spelling import refuse_unknown
from .timestamps import is_finite

MAX_ATTEMPTS = 1_000_000
MAX_DELAY_S = 10 * 365 * 86400.0  # seconds, ten years: beyond this a delay is a mistake, not a plan


@dataclass(frozen=True, slots=True)
class Retry:
    """`base · 2ⁿ⁻¹` seconds after the n-th failure, at most `cap`, spread by `jitter`.

    `jitter=0.2` means up to 20 % sooner or later, so that jobs that failed together are not retried
    together. `max_attempts=1` means no retry.
    """

    max_attempts: int = 5
    base: float = 1.0
    cap: float = 300.0
    jitter: float = 0.2

    def __new__(cls, *args: object, **given: object) -> Self:
        refuse_unknown("Retry", given, cls.__slots__)
        return object.__new__(cls)

    def __post_init__(self) -> None:
        whole = isinstance(self.max_attempts, int) and not isinstance(self.max_attempts, bool)
        if not (whole and 1 <= self.max_attempts <= MAX_ATTEMPTS):
            raise _invalid("max_attempts", f"a whole number from 1 to {MAX_ATTEMPTS}", self)
        for field in ("base", "cap"):
            if not _between(0.0, getattr(self, field), MAX_DELAY_S):
                raise _invalid(field, f"a number of seconds from 0 to {MAX_DELAY_S:.0f}", self)
        if self.cap < self.base:
            raise _invalid("cap", f"at least base ({self.base:g} s)", self)
        if not _between(0.0, self.jitter, 1.0):
            raise _invalid("jitter", "a share from 0 to 1", self)

    def delay(self, failures: int, position: float) -> float:
        """Seconds to wait after the n-th failure; `position` in [0, 1) places it in the jitter
        band."""
        doublings = min(max(failures, 1) - 1, 60)
        exact = min(self.cap, self.base * 2.0**doublings)
        return min(self.cap, exact * (1 + self.jitter * (2 * position - 1)))

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Retry:
        return cls(**json.loads(text))


def _between(low: float, value: object, high: float) -> bool:
    return is_finite(value) and low <= value <= high  # type: ignore[operator]


def _invalid(field: str, wanted: str, retry: Retry) -> InvalidOption:
    value = getattr(retry, field)
    return InvalidOption(option=f"retry.{field}", reason=f"must be {wanted}, not {value!r}")
