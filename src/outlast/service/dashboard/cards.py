"""Tables that are shown as cards on phones: each cell has the heading of its column as a label.

The style sheet stacks the cells of a row, after which browsers no longer expose a table to screen
readers: ARIA roles restore that. The text of cells is escaped, so all tags are from the templates.
"""

from __future__ import annotations

import re

from markupsafe import Markup, escape

_PARTS = re.compile(r"<(thead|tbody|tr|td|th)\b([^>]*)>")
_HEADING = re.compile(r'<th scope="col"[^>]*>(.*?)</th>', re.DOTALL)
_ROLES = {"thead": "rowgroup", "tbody": "rowgroup", "tr": "row", "td": "cell"}


def as_cards(table: Markup) -> Markup:
    """Add a label and a role to each cell of a table."""
    labels = [Markup(heading).striptags() for heading in _HEADING.findall(table)]  # noqa: S704
    column = 0

    def mark(found: re.Match[str]) -> str:
        nonlocal column
        tag, attributes = found.groups()
        if tag == "th" and 'scope="col"' in attributes:
            return f'<th{attributes} role="columnheader">'
        if tag == "tr":
            column = 0
        if tag not in ("td", "th"):
            return f'<{tag}{attributes} role="{_ROLES[tag]}">'
        label = labels[column] if column < len(labels) else ""
        column += 1
        role = "rowheader" if tag == "th" else "cell"
        return f'<{tag}{attributes} role="{role}" data-label="{escape(label)}">'

    return Markup(_PARTS.sub(mark, table))  # noqa: S704 - it was markup before
