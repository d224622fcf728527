"""Writes docs/choices.md from the ``Choice:`` remarks of the source: ``python docs/make_choices.py``."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "choices.md"
INTRODUCTION = """# Choices

Where the paper is silent, contradicts itself or differs from its test bed, the source says what was chosen
and why, in a remark that begins with `Choice:`. This page collects them, file by file. It is made by
`python docs/make_choices.py`; do not edit it.
Points of the paper are named in [reading the paper](reading-the-paper.md).
"""


def choices(source: str) -> list[str]:
    """The remarks of one file, each as one line.

    A remark goes from ``Choice:`` to the end of the comment or of the docstring's paragraph.
    """
    found: list[list[str]] = []
    inside = commented = False
    for line in source.splitlines():
        start = "Choice:" in line and re.search(r"(.*)\bChoice:\s*(.*)", line)
        text = line.strip()
        if start:
            found.append([start[2]])
            inside, commented = True, "#" in start[1]
        elif inside and text and not text.startswith('"""') and commented == text.startswith("#"):
            found[-1].append(text.lstrip("# "))
        else:
            inside = False
        if inside and not commented and text.endswith('"""'):
            inside = False
    return [" ".join(parts).removesuffix('"""').strip() for parts in found]


def page() -> str:
    parts = [INTRODUCTION]
    for path in sorted((ROOT / "src").rglob("*.py")):
        if remarks := choices(path.read_text(encoding="utf-8")):
            parts.append(
                f"## {path.relative_to(ROOT / 'src')}\n\n" + "".join(f"- {remark}\n" for remark in remarks)
            )
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
