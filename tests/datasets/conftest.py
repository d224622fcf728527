"""The real files, where they are at hand."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def real_data() -> Path:
    folder = Path(os.environ.get("FEDEPD_DATA") or Path(__file__).parents[2] / "../shared/data")
    if not (folder / "graphs").is_dir():
        pytest.skip(f"no real graphs in {folder}; set FEDEPD_DATA to the folder that holds graphs/ and raw/")
    return folder
