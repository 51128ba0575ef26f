"""Hooks of MkDocs: navigation as in docs/index.md, and links to files outside of docs/.

The pages are read in a checkout, too, so they link to examples and deployment files by their paths.
On the site these files stand under `repository/`.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

LINK = re.compile(r"(?<=\]\()(?P<path>(?:\.\./)+[^)#\s:]+)")
SECTION = re.compile(r"^## (.+)$", re.MULTILINE)
ENTRY = re.compile(r"\]\(([\w/-]+\.md)\)")
OUTSIDE = "repository"
ROOT = Path(__file__).parents[2]
FOLDER = "README.md"  # stands for a folder that is linked to


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    config.nav = navigation((ROOT / "docs" / "index.md").read_text("utf-8"))
    return config


def navigation(index: str) -> list[Any]:
    """The sections of the index page, in its order."""
    nav: list[Any] = [{"Outlast": "index.md"}]
    names = SECTION.split(index)
    for name, body in zip(names[1::2], names[2::2], strict=True):
        nav.append({name: list(dict.fromkeys(ENTRY.findall(body)))})
    return nav


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for page in list(files.documentation_pages()):
        for link in LINK.finditer(page.content_string):
            target = outside(page.src_uri, link["path"])
            if target is None or target == "README.md":
                continue
            for file in linked_files(target):
                uri = f"{OUTSIDE}/{file.as_posix()}"
                if files.get_file_from_path(uri) is None:
                    files.append(File.generated(config, uri, abs_src_path=str(ROOT / file)))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: object) -> str:
    def moved(link: re.Match[str]) -> str:
        target = outside(page.file.src_uri, link["path"])
        if target is None:
            return link["path"]
        here = PurePosixPath(page.file.src_uri).parent.as_posix()
        if target == "README.md":
            return relpath("index.md", here)
        file = linked_files(target)[0].as_posix()
        return relpath(f"{OUTSIDE}/{file}", here)

    return LINK.sub(moved, markdown)


def outside(page: str, link: str) -> str | None:
    """The path in the repository of a link that leaves docs/; none if it stays."""
    path = normpath(f"docs/{PurePosixPath(page).parent.as_posix()}/{link}")
    return None if path.startswith("docs/") else path


def linked_files(target: str) -> list[Path]:
    """A file, or those of a folder, the first of which stands for it."""
    path = ROOT / target
    found = [path] if path.is_file() else sorted(path.rglob("*.*"))
    return [file.relative_to(ROOT) for file in found if file.is_file()]
