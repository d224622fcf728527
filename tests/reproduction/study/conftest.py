"""Lines of kept scores, written down instead of trained."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fedepd.reproduction.study.scores_file import BLOCKS, COLUMNS, MEANS, Line, column

MakeLine = Callable[..., Line]


@pytest.fixture
def make_line() -> MakeLine:
    """``make_line(7, models=["personal"])``: the cell 000000000007 with one model."""

    def make(number: int, models: tuple[str, ...] = ("global", "personal"), **other: str) -> Line:
        line = dict.fromkeys(COLUMNS, "") | {
            "cell": f"{number:012x}",
            "method": "fedavg",
            "preset": "default",
        }
        line |= {"dataset": "email", "seed": "0", "clients": "3", "tested": "40", "preferred": models[0]}
        for block in models:
            line |= {f"{block}.round": "5", f"{block}.right": "30"}
            line |= {column(block, average, name): ".5" for average in BLOCKS[block] for name in MEANS}
        return line | {name.replace("__", "."): text for name, text in other.items()}

    return make
