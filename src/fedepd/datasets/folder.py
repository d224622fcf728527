"""Where the datasets are on this machine."""

from __future__ import annotations

import os
from pathlib import Path


def data_folder(data_dir: str | Path | None = None) -> Path:
    """The argument, else $FEDEPD_DATA, else the user's cache folder."""
    if data_dir or os.environ.get("FEDEPD_DATA"):
        return Path(data_dir or os.environ["FEDEPD_DATA"]).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "fedepd"
