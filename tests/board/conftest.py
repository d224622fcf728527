"""Run folders as those of a report, and a board of their folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("starlette", reason="needs the extra 'board'")
pytest.importorskip("uvicorn", reason="needs the extra 'board'")
pytest.importorskip("plotly", reason="needs the extra 'board'")

from report.conftest import write_run

if TYPE_CHECKING:
    from board.asking import Asker

__all__ = ["write_run"]


@pytest.fixture
def ask(tmp_path: Path) -> Callable[[], Asker]:
    """``ask()`` gives a browser that looks at the runs which ``write_run`` has written."""
    from board.asking import Asker

    (tmp_path / "runs").mkdir(exist_ok=True)
    return lambda: Asker(tmp_path / "runs")
