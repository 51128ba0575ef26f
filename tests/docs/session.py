"""Runs one page as a reader would, in a fresh folder: `python -m tests.docs.session page.md`."""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.docs.pages import Block, Page

_EXPECTED = re.compile(r"\)  # (.+)$")
PYTEST = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "outlast.testing.plugin"]


def main(path: str) -> None:
    page = Page(Path(path))
    with asyncio.Runner() as runner:
        namespace = Session(page).namespace
        for block in page.python:
            if block.file:
                run_file(block.file, block.text)
            else:
                run_block(page, block, namespace, runner)


def run_block(page: Page, block: Block, namespace: dict[str, Any], runner: asyncio.Runner) -> None:
    source = "\n" * (block.line - 1) + block.text  # a traceback names the page's own lines
    code = compile(source, page.path, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    result = eval(code, namespace)
    if inspect.iscoroutine(result):
        runner.run(result)


def run_file(name: str, text: str) -> None:
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text(text, "utf-8")
    by = PYTEST if name.startswith("test_") else []
    # A reader's pytest has our plugin, and none of those that our own tests use.
    alone = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    subprocess.run([sys.executable, *by, name], check=True, env=alone)


class Session:
    """The page's own main program, as at a prompt, with a print that is compared."""

    def __init__(self, page: Page) -> None:
        self.lines = page.text.splitlines()
        self.path = str(page.path)
        sys.modules["__main__"] = ModuleType("__main__")
        self.namespace = vars(sys.modules["__main__"])
        self.namespace["print"] = self.print
        sys.path.insert(0, str(Path.cwd()))

    def print(self, *values: object, **options: Any) -> None:
        said = str(options.get("sep", " ")).join(map(str, values))
        sys.stdout.write(said + "\n")
        frame = inspect.currentframe()
        caller = frame.f_back if frame else None
        if caller is None or caller.f_code.co_filename != self.path:
            return
        expected = _EXPECTED.search(self.lines[caller.f_lineno - 1])
        if expected and said != expected[1]:
            raise AssertionError(
                f"{self.path}:{caller.f_lineno} says {expected[1]!r}, but it prints {said!r}"
            )


if __name__ == "__main__":
    main(sys.argv[1])
