"""Whom a campaign kills: nobody who has not begun to work, and never the last who has."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path

from outlast.verify.children import Children
from outlast.verify.process_group import ProcessGroup


def test_a_campaign_leaves_one_that_works(tmp_path: Path) -> None:
    """On a slow machine, kills at a fixed rate would leave only processes that start."""
    group = ProcessGroup(Children(tmp_path / "errors"), "worker", lambda _: None, print)
    victim = partial(group.victim, random.Random(1))
    group.running += [11, 12, 13]
    assert victim() is None
    group.saw_working(11)
    assert victim() is None
    group.saw_working(12)
    assert {victim() for _ in range(20)} == {11, 12}
    group.running.remove(11)
    assert victim() is None
