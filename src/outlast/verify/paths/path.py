"""What a path is, and how it is walked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from ..stage import Stage

Body = Callable[[Stage], Iterator[object]]
Again = Callable[[Stage], Iterable[str]]

LATER = object()  # yielded by a path that arms the trap itself, at the right moment
PATHS: dict[str, Path] = {}


@dataclass
class Path:
    """`owner`: it writes as the owner of claims, so a zombie can try it too late. `apart`: it would
    remove what other paths leave. `callers`: it commits a transaction of the caller's own. `most`:
    points to try in one round, of a path that is slow."""

    name: str
    body: Body
    owner: bool = False
    apart: bool = False
    callers: bool = False
    most: int | None = None
    only: str | None = None  # the one kind of database on which there is such a path
    alone: bool = False  # other paths in its place would spoil it
    raises: tuple[type[Exception], ...] = ()  # errors that it causes in calls, none of ours
    retry: Again | None = field(default=None, repr=False)

    def again(self, retry: Again) -> Again:
        """What whoever was killed would do next; it says what is wrong, if anything is."""
        self.retry = retry
        return retry


def path(
    name: str,
    *,
    owner: bool = False,
    apart: bool = False,
    callers: bool = False,
    most: int | None = None,
    only: str | None = None,
) -> Callable[[Body], Path]:
    def register(body: Body) -> Path:
        PATHS[name] = Path(name, body, owner, apart, callers, most, only)
        return PATHS[name]

    return register


def perform(path: Path, stage: Stage) -> None:
    """Prepare, then act under the trap."""
    steps = path.body(stage)
    stage.trap.armed = next(steps) is not LATER
    next(steps, None)
    stage.trap.armed = False
