"""The description of the package: the README, without what leads into a checkout.

A package index shows the README alone, where its pictures and its links to files lead nowhere.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

PICTURE = re.compile(r"^!\[[^\]]*\]\((?!https?:)[^)]*\)\n", re.MULTILINE)
LINK = re.compile(r"\[([^\]]*)\]\((?!https?:)[^)]*\)")
DOCUMENTATION = "## Documentation\n\n"
WHERE = "In the folder `docs` of the source distribution; `docs/index.md` lists all pages.\n\n"


class PackageDescription(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        readme = (Path(self.root) / "README.md").read_text("utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": package_description(readme)}


def package_description(readme: str) -> str:
    """Without pictures; links to files as their text alone."""
    without = LINK.sub(r"\1", PICTURE.sub("", readme))
    return without.replace(DOCUMENTATION, DOCUMENTATION + WHERE)
