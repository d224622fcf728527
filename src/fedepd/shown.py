"""Make foreign text safe to show. There is one function for each place where a name from a file may appear.

A terminal obeys control characters, a browser obeys tags, a spreadsheet formulas, and LaTeX commands. None of
these may come from data.
"""

from __future__ import annotations

import csv
import html
import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Sequence

LIMIT = 80
"""Most characters of a name in a sentence, a table or a figure."""
SENTENCE = 2000
"""Most characters of a whole message. Our own longest, which lists all settings, has half as many."""
FILE_NAME = 100
"""Most bytes of a file's stem that is made from a name. This leaves room for our endings."""

_UNFIT = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Unicode categories that are not shown: control characters, invisible characters, surrogates, line ends.

Invisible characters can reorder or hide text.
"""
_JOINER = re.compile("(?<=[^\x00-\x7f\u200c\u200d])[\u200c\u200d](?=[^\x00-\x7f\u200c\u200d])")
"""A joiner between two characters that are not ASCII, as Persian, Indian scripts and emoji need it.

Anywhere else, a joiner can only hide something.
"""


def plain(text: object, newlines: bool = False) -> str:
    """``text`` at full length on one line. Control characters and invisible ones become '?'.

    With ``newlines``, line ends are kept.
    """
    line = str(text)
    if line.isprintable():
        return line
    kept = {found.start() for found in _JOINER.finditer(line)}
    return "".join(c if place in kept or _fits(c, newlines) else "?" for place, c in enumerate(line))


def _fits(character: str, newlines: bool) -> bool:
    return unicodedata.category(character) not in _UNFIT or (newlines and character == "\n")


def shown(text: object, limit: int = LIMIT) -> str:
    """``text`` as one short line.

    Control characters and invisible ones become '?', and a long text ends in '...'.
    """
    line = str(text)
    clean = plain(line[: limit + 1])
    return clean if len(line) <= limit else clean[: limit - 3] + "..."


def listed(names: Collection[object], most: int = 5) -> str:
    """The first names, and how many more there are: ``a, b, c and 12 more``."""
    first = ", ".join(shown(name) for name, _ in zip(names, range(most), strict=False))
    return f"{first} and {len(names) - most:,} more" if len(names) > most else first


def sentence(text: object, limit: int = SENTENCE) -> str:
    """A whole message on one line.

    Of a very long one, the start and the end are kept; the end names the cure.
    """
    line, end = str(text).replace("\n", " "), limit // 4
    if len(line) > limit:
        line = f"{line[: limit - end - 5]} ... {line[-end:]}"
    return plain(line)


def whole(text: str) -> str:
    """Replace halves of surrogate pairs by '?', because no file can hold them. All other characters stay."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def slug(name: object) -> str:
    """A name for a file or an anchor, made of letters, digits, '_', '.' and '-'.

    It holds nothing with a special meaning in a path or a browser.
    """
    words = re.sub(r"[^\w.-]+", "-", str(name))
    short = words.encode("utf-8", "replace")[:FILE_NAME].decode("utf-8", "ignore")
    return short.strip("-.") or "unnamed"


# --- pages --------------------------------------------------------------------------------------------------


def html_text(text: object, newlines: bool = False) -> str:
    """Text for HTML, also inside a quoted attribute."""
    return html.escape(plain(text, newlines), quote=True)


def drawn(text: object, limit: int = LIMIT) -> str:
    """Text for a figure whose style has ``text.parse_math`` off.

    matplotlib leaves names that start with '_' out of legends, so a blank is put before them.
    """
    line = shown(text, limit)
    return f" {line}" if line.startswith("_") else line


# --- Markdown -----------------------------------------------------------------------------------------------


def markdown_text(text: object) -> str:
    """Text for Markdown, escaped so that it is only text.

    It makes no tag, link, picture, code, formula or cell border, and no heading or list at the start of a
    line.
    """
    line = re.sub(r"([\\`*_|<>\[\]~&$])", r"\\\1", plain(text))
    # A bare address would become a link.
    line = re.sub(r"(://|\bwww\.)", lambda found: found[0].replace(":", r"\:").replace(".", r"\."), line)
    line = re.sub(r"^\s+", "", line)  # four spaces would be code
    return re.sub(r"^(?=[#+=-](?:[#+=\s-]|$))|^(\d+)(?=[.)](?:\s|$))", r"\1\\", line)


def markdown_code(text: object) -> str:
    """A short name between backticks."""
    return f"`{shown(text).replace('`', chr(39)) or ' '}`"


# --- LaTeX --------------------------------------------------------------------------------------------------

_TEX = {
    "\\": r"\textbackslash{}",
    "±": r"$\pm$",
    "†": r"$^\dagger$",
    "‡": r"$^\ddagger$",
    "–": "--",
    "~": r"\textasciitilde{}",
}
_TEX |= {
    "^": r"\textasciicircum{}",
    "≤": r"$\leq$",
    "−": "$-$",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "×": r"$\times$",
}


def latex_text(text: object) -> str:
    """Text for LaTeX. Every special character is escaped and printed as itself."""
    return re.sub(r"[\\±†‡–~^≤−<>×#$%&_{}]", lambda found: _TEX.get(found[0], f"\\{found[0]}"), plain(text))


def latex_label(name: object) -> str:
    """A name for ``\\label``, which allows no escapes: ASCII letters, digits and '_', '.', ':', '-'."""
    return re.sub(r"[^A-Za-z0-9_.:-]+", "-", str(name))


# --- CSV ----------------------------------------------------------------------------------------------------

_FORMULA = re.compile(r"'*[=+\-@\t\r\n＝＋－＠]")
_BEFORE_FORMULA = frozenset("'=+-@\t\r\n＝＋－＠")
"""With what a text begins that ``_FORMULA`` matches."""
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def csv_text(rows: Iterable[Sequence[object]], fit: Callable[[str], str] = whole) -> str:
    """Rows as CSV.

    A text that a spreadsheet would take for a formula gets an apostrophe in front, as OWASP advises. Numbers
    do not. A reader who wants the original text removes one apostrophe if '=', '+', '-', '@', a tab or a line
    end follows, or further apostrophes before one of these.
    """
    lines = _Lines()
    # The writer quotes cells that hold a character of its line end. Without '\r' in it, one with '\r' could
    # start a new row.
    csv.writer(lines, lineterminator="\r\n").writerows(
        [_cell(fit(value)) if isinstance(value, str) else value for value in row] for row in rows
    )
    return "".join(lines)


class _Lines(list[str]):
    """What a CSV writer has written, a row at a time, with plain line ends."""

    def write(self, row: str) -> None:
        self.append(f"{row[:-2]}\n")


def _cell(text: str) -> str:
    if text[:1] not in _BEFORE_FORMULA:
        return text
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text
