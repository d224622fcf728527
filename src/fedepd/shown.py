"""Foreign text made fit to be shown: no control characters, no lone surrogates, no endless names."""

from __future__ import annotations

import unicodedata

LIMIT = 80


def shown(text: object, limit: int = LIMIT) -> str:
    """``text`` as one short line: control and format characters become '?', what is too long ends in '...'."""
    line = str(text)
    clean = "".join("?" if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp") else c for c in line[: limit + 1])
    return clean if len(line) <= limit else clean[: limit - 3] + "..."
