"""The wheel has all of the package and nothing else; its description has no broken links."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from email import message_from_bytes
from email.message import Message
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.support.processes import ROOT

SOURCE = ROOT / "src"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (made,) = folder.glob("*.whl")
    return made


@pytest.fixture
def metadata(wheel: Path) -> Message:
    with ZipFile(wheel) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith("/METADATA"))
        return message_from_bytes(archive.read(name))


def test_it_has_every_file_of_the_package_and_no_other(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    files = {path for path in SOURCE.rglob("*") if path.is_file() and path.suffix != ".pyc"}
    assert packed == {str(path.relative_to(SOURCE)) for path in files}
    assert "outlast/py.typed" in packed


def test_it_works_alone(wheel: Path, tmp_path: Path) -> None:
    """Its .sql files and templates are found without the checkout: tables are made of them."""
    with ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    env = os.environ | {"PYTHONPATH": str(tmp_path / "site"), "PYTHONDONTWRITEBYTECODE": "1"}
    env.pop("OUTLAST_URL", None)
    for command in ("migrate", "jobs"):
        run = [sys.executable, "-m", "outlast", command]
        subprocess.run(run, cwd=tmp_path, env=env, check=True, capture_output=True)
    where = [sys.executable, "-c", "import outlast; print(outlast.__file__)"]
    found = subprocess.run(where, cwd=tmp_path, env=env, check=True, capture_output=True, text=True)
    assert found.stdout.startswith(str(tmp_path))


def test_its_description_has_no_picture_and_no_link_into_the_checkout(metadata: Message) -> None:
    """An index shows the README alone: what lies beside it leads nowhere there."""
    text = str(metadata.get_payload(decode=True), "utf-8")
    assert metadata["Description-Content-Type"] == "text/markdown"
    links = re.findall(r"\]\(([^)]*)\)", text)
    assert [link for link in links if not link.startswith("https://")] == []
    assert text.startswith("# Outlast\n") and "- **At home where you are.** Django with" in text
