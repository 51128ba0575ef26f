"""The README: short, code first, its pictures there and small."""

from __future__ import annotations

import re

from tests.support.processes import ROOT

README = (ROOT / "README.md").read_text("utf-8").splitlines()
MAX_LINES = 150
CODE_BEFORE_LINE = 30
MAX_PICTURE_BYTES = 200_000


def test_the_readme_is_short_and_shows_code_first() -> None:
    assert len(README) <= MAX_LINES
    code = [number for number, line in enumerate(README, 1) if line == "```python"]
    ends = [number for number, line in enumerate(README, 1) if line == "```"]
    assert code and code[0] < ends[0] < CODE_BEFORE_LINE


def test_it_has_a_picture_of_the_dashboard_and_of_the_demo() -> None:
    """Made by `make screenshots`; in a browser none of them asks another host."""
    shown = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", "\n".join(README))
    assert shown == ["docs/images/demo.svg", "docs/images/dashboard-overview.png"]
    for name in shown:
        data = (ROOT / name).read_bytes()
        assert 1_000 < len(data) < MAX_PICTURE_BYTES, name
    drawn = (ROOT / shown[0]).read_text("utf-8")
    asked = re.findall(r"""(?:src|href|url)\W{1,3}(https?://[^"')]+)""", drawn)
    assert not asked
    assert "outlast demo" in re.sub(r"&#160;", " ", drawn)


def test_all_committed_pictures_are_small() -> None:
    large = {
        str(path.relative_to(ROOT)): path.stat().st_size
        for path in (ROOT / "docs" / "images").iterdir()
        if path.stat().st_size >= MAX_PICTURE_BYTES
    }
    assert large == {}
