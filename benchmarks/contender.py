"""Who is measured. What a contender says of itself is read from its file without importing it: its
library is only in its own environment. A file is in Python, or for Node.js (`.mjs`)."""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

OUTLAST, BARE, PEER = "outlast", "bare", "peer"
OURS = Path(__file__).parent / "ours"
NODE = ".mjs"
_EXPORT = re.compile(r"^export const ([A-Z]+) = (.+);$", re.M)  # a value as JSON has it
_VERSION = re.compile(r"(?!^)[\[=>@].*")  # and extras; the first letter may be an @


@dataclass(frozen=True)
class Contender:
    """One system on one store. The constants of its file, in small letters."""

    name: str
    store: str
    file: Path
    kind: str = PEER
    requires: tuple[str, ...] = ()  # packages, as pip wants them
    python: str = ""  # the oldest that will do
    imports: str = ""  # the module whose import is timed
    help: tuple[str, ...] = ()  # arguments that make Python show the help of its worker
    can: frozenset[str] = frozenset()
    share: float = 1.0  # of the jobs that others get, for those who are slow
    durable: bool = False  # nothing that was acknowledged is lost, whatever crashes
    durability: str = ""
    settings: str = ""  # what was set otherwise than it comes
    interpreter: str = field(default=sys.executable, compare=False)

    @property
    def label(self) -> str:
        return f"{self.name}/{self.store}"

    @property
    def is_node(self) -> bool:
        return self.file.suffix == NODE

    @property
    def packages(self) -> list[str]:
        """The names of what it requires, without versions and extras."""
        return [_VERSION.sub("", require) for require in self.requires]

    def lacks(self, needs: Iterable[str]) -> list[str]:
        return sorted(set(needs) - self.can)


def found_in(folder: Path) -> list[Contender]:
    """One for each store of each file."""
    files = sorted(
        path
        for path in folder.iterdir()
        if path.suffix in (".py", NODE) and path.name != "__init__.py"
    )
    return [contender for file in files for contender in _of(file)]


def chosen(contenders: Iterable[Contender], names: Iterable[str]) -> list[Contender]:
    """Those who are meant by a name (`huey`), a label (`huey/redis`) or a store (`/redis`)."""
    wanted = set(names)
    return [c for c in contenders if not wanted or wanted & {c.name, c.label, f"/{c.store}"}]


def _of(file: Path) -> Iterator[Contender]:
    said = _constants(file)
    for store in said["STORES"]:
        yield Contender(
            name=said["NAME"],
            store=store,
            file=file,
            kind=said.get("KIND", PEER),
            requires=tuple(said["REQUIRES"]),
            python=said.get("PYTHON", ""),
            imports=said.get("IMPORTS", ""),
            help=tuple(said.get("HELP", ())),
            can=frozenset(said["CAN"]),
            share=said.get("SHARE", 1.0),
            durable=said["DURABLE"]
            if isinstance(said["DURABLE"], bool)
            else store in said["DURABLE"],
            durability=said["DURABILITY"],
            settings=said.get("SETTINGS", ""),
        )


def _constants(file: Path) -> dict[str, Any]:
    if file.suffix == NODE:
        return {name: json.loads(value) for name, value in _EXPORT.findall(file.read_text("utf-8"))}
    found: dict[str, Any] = {}
    for node in ast.parse(file.read_text("utf-8")).body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Name) and target.id.isupper():
                try:
                    found[target.id] = ast.literal_eval(node.value)
                except ValueError:
                    continue  # a constant that is none of ours
    return found
