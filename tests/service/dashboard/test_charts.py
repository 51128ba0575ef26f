"""Charts as paths: gaps where nothing was counted, and a dot for a lone value."""

from __future__ import annotations

from outlast.service.dashboard.charts import path


def test_a_lone_value_is_a_dot() -> None:
    """A path of one move draws nothing; a line without length is drawn by its round ends."""
    assert path([None, 3.0, None], 3.0).endswith("h0")
    assert path([3.0], 3.0).endswith("h0")
    assert path([None, None, 3.0], 3.0).endswith("h0")


def test_neighbours_are_connected_without_dots() -> None:
    drawn = path([1.0, 2.0, None, 3.0, 1.0], 3.0)
    assert drawn.count("M") == 2
    assert drawn.count("L") == 2
    assert "h0" not in drawn
