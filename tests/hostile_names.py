"""Names that somebody made to do harm, and names that only look strange."""

from __future__ import annotations

import unicodedata
from typing import Any

import pytest

ESCAPES = {
    "window title": "a\x1b]0;owned\x07b",
    "clear the screen": "a\x1b[2J\x1b[Hb",
    "8-bit escape": "a\x9b31mb\x9d0;owned\x9c",
    "link": "\x1b]8;;http://evil.example\x1b\\click\x1b]8;;\x1b\\",
    "clipboard": "\x1b]52;c;cm0gLXJmIH4=\x07",
    "overwrite": "the model is bad\rfedepd: all fine",
    "rub out": "bad\b\b\bfine",
    "second line": "x\nfedepd: all fine",
    "next line": "x\x85fedepd: all fine",
    "line separator": "x\u2028fedepd: all fine\u2029",
    "vertical": "x\x0bfedepd: all fine\x0c",
    "null": "a\x00b",
    "delete": "a\x7fb",
    "override": "safe\u202egpj.exe\u202c",
    "isolate": "\u2066a\u2067b\u2068c\u2069",
    "mark": "a\u200eb\u200fc\u061c",
    "zero width": "fed\u200bavg\u2060\ufeff\u00ad",
    "hidden joiners": "m\u200du\u200cle",
    "run of joiners": "é" + "\u200d\u200c" * 20 + "é",
    "tags": "a\U000e0041\U000e0042\U000e007f",
    "lone surrogate": "a\ud800b\udfff",
    "surrogateescape": b"caf\xe9".decode("utf-8", "surrogateescape"),
}
"""Each holds at least one character that no terminal may get."""

MARKUP = {
    "endless": "x" * 10_000,
    "endless escapes": "\x1b[2J" * 5_000,
    "script": "<script>document.title='owned'</script>",
    "image": "<img src=x onerror=\"document.title='owned'\">",
    "attribute": '"onmouseover="document.title=\'owned\'" x="',
    "single quote": "' onclick='document.title=1",
    "end of style": "</style><script>document.title='owned'</script>",
    "end of svg": "</text></svg><script>document.title='owned'</script>",
    "comment": "--><script>document.title='owned'</script><!--",
    "cdata": "]]><script>document.title='owned'</script><![CDATA[",
    "entity": "&lt;script&gt;&#x3c;b&#x3e;",
    "javascript": "javascript:document.title='owned'",
    "markdown link": "[click](javascript:document.title='owned')",
    "markdown image": "![x](http://evil.example/x.png)",
    "autolink": "<http://evil.example>",
    "bare address": "https://evil.example/ www.evil.example",
    "fence": "```markdown```",
    "heading": "# all fine",
    "cell": "a | b | c",
    "formula": '=HYPERLINK("http://evil.example","click")',
    "call": "@SUM(1+1)*cmd|' /C calc'!A0",
    "plus": "+1+cmd|' /C calc'!A0",
    "minus": "-1+cmd|' /C calc'!A0",
    "mathematics": r"$\frac{",
    "more mathematics": r"$x^{2}$ $\undefined$",
    "input": r"\input{/etc/passwd}",
    "write18": r"\immediate\write18{touch owned}",
    "end of document": r"\end{document}\input{x}",
    "brace": "}{%",
    "percent": "100% sure",
    "specials": r"~^_#&%${}\<>",
    "option": "[5cm]x",
    "star": "* x",
    "rich markup": "[red]x[/red] :smile:",
    "legend": "_nolegend_",
    "traversal": "../../../etc/passwd",
    "quotes": 'it\'s "quoted"',
    "empty": "",
    "spaces": "     x     ",
    "format": "{0.__class__} %s %n {task.description}",
}

STRANGE = {
    "chinese": "欺诈账户",
    "japanese": "テスト用クラス",
    "arabic": "احتيال",
    "persian with a joiner": "می\u200cخواهم",
    "hindi with a joiner": "क्\u200dष",
    "emoji": "🙂🚀",
    "family": "👩\u200d👧\u200d👦",
    "flag": "🇦🇹",
    "combining": "e\u0301le\u0300ve",
    "accents": "Élève straße",
    "mathematical": "α ≤ β × γ − δ",
}
"""Honest: they must come out as they are."""

PAYLOADS = ESCAPES | MARKUP
ALL = PAYLOADS | STRANGE


def unfit(text: str) -> list[str]:
    """Characters in a line that steer a terminal, hide or reorder text, or cannot be written at all."""
    kept = {place for name in STRANGE.values() if not text.isprintable() for place in _places(text, name)}
    kinds = ("Cc", "Cf", "Cs", "Zl", "Zp")
    return [
        f"U+{ord(c):04X}"
        for place, c in enumerate(text)
        if unicodedata.category(c) in kinds and place not in kept
    ]


def _places(text: str, name: str) -> list[int]:
    starts = [place for place in range(len(text)) if text.startswith(name, place)]
    return [place for start in starts for place in range(start, start + len(name))]


def check_lines(text: str) -> None:
    """Nothing unfit but the ends of lines, and no line that pretends to be ours."""
    assert unfit(text.replace("\n", "")) == []
    assert not any(line.strip().startswith("fedepd: all fine") for line in text.splitlines())


FEW = {
    "window title", "second line", "override", "lone surrogate", "endless", "script", "attribute", "formula",
    "mathematics", "input", "cell", "traversal", "empty", "chinese", "family",
}  # fmt: skip
"""One of each kind, for tests that make a page or a file of every name.

'make test' takes these, 'make test-heavy' all.
"""


def cases(names: dict[str, str]) -> list[Any]:
    """Parameters for a test: those in ``FEW`` always, the others where there is time."""
    return [
        pytest.param(text, id=name, marks=() if name in FEW else pytest.mark.heavy)
        for name, text in names.items()
    ]
