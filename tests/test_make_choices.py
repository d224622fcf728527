"""docs/choices.md is made from the source and must not lag behind it."""

from __future__ import annotations

import importlib.util
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
spec = importlib.util.spec_from_file_location("make_choices", ROOT / "docs" / "make_choices.py")
assert spec is not None
assert spec.loader is not None
make_choices = importlib.util.module_from_spec(spec)
spec.loader.exec_module(make_choices)


def test_remarks_are_found_in_comments_and_docstrings() -> None:
    source = '''def f():
    """Does it.

    Choice: first
    goes on.
    Choice: second.

    Not part of it.
    """
    a = 1  # Choice: third
    # Choice: fourth
    # goes on
    b = 2  # an ordinary comment
def g():
    """Short. Choice: fifth."""
    c = 3
'''
    assert make_choices.choices(source) == ["first goes on.", "second.", "third", "fourth goes on", "fifth."]


def test_no_remark_is_missed() -> None:
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py")]
    assert (
        sum(source.count("Choice:") for source in sources)
        == sum(len(make_choices.choices(source)) for source in sources)
        > 0
    )


def test_the_page_is_up_to_date() -> None:
    written = make_choices.PAGE.read_text(encoding="utf-8")
    assert written == make_choices.page(), "run 'python docs/make_choices.py' and commit docs/choices.md"
