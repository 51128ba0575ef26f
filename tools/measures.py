"""Print how readable the source tree is, as figures: `python -m tools.measures [--json]`.

Each figure counts something a newcomer stumbles over: files in the wheel, words that are bound to
many things, class names that stand in several modules, parts that reach into the whole worker.
Run it on another checkout with `--src REPORTS_PATH/src/outlast` to compare.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "outlast"

OVERLOADED_WORDS = ("told", "place", "said")
OVERLOADED_CONSTANTS = ("PATIENCE", "LONGEST")
REMOTE_FOLDERS = ("remote", "service/dequeue")
LONG_FILE = 350
LONG_FUNCTION = 50


class Tree:
    """The parsed modules of a source tree."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.texts = {path: path.read_text() for path in sorted(root.rglob("*.py"))}
        self.modules = {path: ast.parse(text) for path, text in self.texts.items()}

    def classes(self) -> Iterator[tuple[Path, ast.ClassDef]]:
        for path, module in self.modules.items():
            for node in ast.walk(module):
                if isinstance(node, ast.ClassDef):
                    yield path, node

    def functions(self) -> Iterator[tuple[Path, ast.FunctionDef | ast.AsyncFunctionDef]]:
        for path, module in self.modules.items():
            for node in ast.walk(module):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield path, node

    def name(self, path: Path) -> str:
        return str(path.relative_to(self.root))


def measures(tree: Tree) -> dict[str, object]:
    """Every figure by its name."""
    return {
        "lines of Python": sum(text.count("\n") for text in tree.texts.values()),
        "Python files": len(tree.texts),
        f"files over {LONG_FILE} lines": _long_files(tree),
        f"functions over {LONG_FUNCTION} lines": _long_functions(tree),
        "uses of overloaded words": _overloaded_words(tree),
        "modules that define an overloaded constant": _overloaded_constants(tree),
        "public class names in two or more modules": _repeated_class_names(tree),
        "members of the worker that a part touches": _worker_members(tree),
        "remote subclasses of concrete parts": _remote_subclasses(tree),
        "lines with Any": _lines(tree, r"\bAny\b"),
        "lines with dict[str, Any]": _lines(tree, r"dict\[str, Any\]"),
    }


def _long_files(tree: Tree) -> list[str]:
    return [tree.name(p) for p, text in tree.texts.items() if text.count("\n") > LONG_FILE]


def _long_functions(tree: Tree) -> list[str]:
    return [
        f"{tree.name(path)}:{node.lineno} {node.name}"
        for path, node in tree.functions()
        if (node.end_lineno or node.lineno) - node.lineno > LONG_FUNCTION
    ]


def _overloaded_words(tree: Tree) -> dict[str, int]:
    """Identifiers only: the same word in prose is no fault of a name."""
    names: Counter[str] = Counter()
    for module in tree.modules.values():
        for node in ast.walk(module):
            if isinstance(node, ast.Name):
                names[node.id] += 1
            elif isinstance(node, ast.Attribute):
                names[node.attr] += 1
            elif isinstance(node, ast.arg):
                names[node.arg] += 1
    return {word: names[word] for word in OVERLOADED_WORDS}


def _overloaded_constants(tree: Tree) -> dict[str, int]:
    modules: Counter[str] = Counter()
    for module in tree.modules.values():
        targets = [t for node in module.body if isinstance(node, ast.Assign) for t in node.targets]
        names = {target.id for target in targets if isinstance(target, ast.Name)}
        modules.update(names)
    return {name: modules[name] for name in OVERLOADED_CONSTANTS}


def _repeated_class_names(tree: Tree) -> list[str]:
    places: defaultdict[str, set[Path]] = defaultdict(set)
    for path, node in tree.classes():
        if not node.name.startswith("_"):
            places[node.name].add(path)
    return sorted(name for name, paths in places.items() if len(paths) > 1)


def _worker_members(tree: Tree) -> dict[str, int]:
    """Distinct members of a `worker` that each module in worker/ reads or calls."""
    touched: dict[str, set[str]] = {}
    for path, module in tree.modules.items():
        if path.parent.name != "worker":
            continue
        members = {
            node.attr
            for node in ast.walk(module)
            if isinstance(node, ast.Attribute) and _is_worker(node.value)
        }
        if members:
            touched[tree.name(path)] = members
    ranked = sorted(touched.items(), key=lambda item: -len(item[1]))
    return {name: len(members) for name, members in ranked[:6]}


def _is_worker(node: ast.expr) -> bool:
    if isinstance(node, ast.Name):
        return node.id in ("worker", "_worker")
    return isinstance(node, ast.Attribute) and node.attr in ("worker", "_worker")


def _remote_subclasses(tree: Tree) -> list[str]:
    """Classes of the remote side that inherit from a class of the worker."""
    of_the_worker = {
        node.name
        for path, node in tree.classes()
        if path.relative_to(tree.root).parts[0] == "worker"
    }
    found = []
    for path, node in tree.classes():
        bases = {base.id for base in node.bases if isinstance(base, ast.Name)}
        remote = any(tree.name(path).startswith(folder) for folder in REMOTE_FOLDERS)
        if remote and bases & of_the_worker:
            found.append(node.name)
    return sorted(found)


def _lines(tree: Tree, pattern: str) -> int:
    wanted = re.compile(pattern)
    return sum(
        bool(wanted.search(line)) for text in tree.texts.values() for line in text.split("\n")
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--src", type=Path, default=SOURCE, help="the package to measure")
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args()
    figures = measures(Tree(given.src))
    if given.json:
        print(json.dumps(figures, indent=2))
        return
    for name, figure in figures.items():
        if isinstance(figure, list):
            print(f"{name}: {len(figure)}" + (f" ({', '.join(figure)})" if figure else ""))
        elif isinstance(figure, dict):
            print(f"{name}: " + ", ".join(f"{key} {value}" for key, value in figure.items()))
        else:
            print(f"{name}: {figure}")


if __name__ == "__main__":
    main()
