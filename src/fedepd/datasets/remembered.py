"""Which columns of its tables a graph was made from, kept so that nobody has to name them again."""

from __future__ import annotations

import json
from collections.abc import Mapping

from fedepd.errors import BadData
from fedepd.files import parse_json

ROLES = ("id", "label", "owner", "source", "target")
"""The roles that are kept."""
MAX_COLUMN = 10_000
"""Most characters of a column's name."""


def remembered(columns: Mapping[str, str | None]) -> str:
    """The columns by role as JSON; roles that no column had are left out.

    >>> remembered({"id": "account", "label": "fraud", "owner": None})
    '{"id": "account", "label": "fraud"}'
    """
    kept = {role: columns[role] for role in ROLES if columns.get(role)}
    return json.dumps(kept, ensure_ascii=False) if kept else ""


def recalled(text: str) -> dict[str, str]:
    """The columns by role, checked, because somebody else may have written them.

    Args:
        text: What ``remembered`` returned; empty where nothing is known.

    Returns:
        A column's name for each role that is known.

    Raises:
        BadData: The text is something else.
    """
    found = parse_json(text, "the list of columns by role", "import the tables again") if text else {}
    if not isinstance(found, dict) or not all(
        role in ROLES and isinstance(column, str) and 0 < len(column) <= MAX_COLUMN
        for role, column in found.items()
    ):
        raise BadData("the list of columns by role is damaged; import the tables again")
    return found
