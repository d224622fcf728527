"""Foreign text made fit to be shown: one function for each place where a name out of a file or a message may appear.

A terminal obeys control characters, a browser tags, a spreadsheet formulas, LaTeX commands. None of them may come from data.
"""

from __future__ import annotations

import csv
import html
import io
import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Sequence

LIMIT = 80
"""Characters of a name in a sentence, a table or a figure."""
SENTENCE = 2000
"""Characters of a whole message; our own longest, with all settings to choose from, has half of it."""
FILE_NAME = 100
"""Bytes of a file's stem that is made from a name: room is left for our endings."""

_UNFIT = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Control characters, invisible ones that reorder or hide text, halves of characters, line and paragraph ends."""
_JOINER = re.compile("(?<=[^\x00-\x7f\u200c\u200d])[\u200c\u200d](?=[^\x00-\x7f\u200c\u200d])")
"""Persian, Indian scripts and emoji need joiners between two of their characters; elsewhere a joiner only hides."""


def plain(text: object, newlines: bool = False) -> str:
    """``text`` at full length on one line: what would steer a terminal or hide becomes '?'; ``newlines`` stay if wanted."""
    line = str(text)
    if line.isprintable():
        return line
    kept = {found.start() for found in _JOINER.finditer(line)}
    return "".join(c if place in kept or _fits(c, newlines) else "?" for place, c in enumerate(line))


def _fits(character: str, newlines: bool) -> bool:
    return unicodedata.category(character) not in _UNFIT or (newlines and character == "\n")


def shown(text: object, limit: int = LIMIT) -> str:
    """``text`` as one short line: control and format characters become '?', what is too long ends in '...'."""
    line = str(text)
    clean = plain(line[: limit + 1])
    return clean if len(line) <= limit else clean[: limit - 3] + "..."


def listed(names: Collection[object], most: int = 5) -> str:
    """``a, b, c and 12 more``."""
    first = [shown(name) for name, _ in zip(names, range(most), strict=False)]
    return ", ".join(first) + (f" and {len(names) - most:,} more" if len(names) > most else "")


def sentence(text: object, limit: int = SENTENCE) -> str:
    """A whole message on one line; of an endless one the start, and the end, where the cure stands."""
    line, end = str(text).replace("\n", " "), limit // 4
    return plain(line if len(line) <= limit else f"{line[: limit - end - 5]} ... {line[-end:]}")


def whole(text: str) -> str:
    """Half characters, which no file can hold, become '?'; all else stays."""
    return text.encode("utf-8", "replace").decode()


def slug(name: object) -> str:
    """A name for a file or an anchor: letters, digits, '_', '.', '-' and nothing that a path or a browser reads otherwise."""
    words = (
        re.sub(r"[^\w.-]+", "-", str(name)).encode("utf-8", "replace")[:FILE_NAME].decode("utf-8", "ignore")
    )
    return words.strip("-.") or "unnamed"


# --- pages -------------------------------------------------------------------------------------------------------------------------------


def html_text(text: object, newlines: bool = False) -> str:
    """For HTML, as text or inside a quoted attribute."""
    return html.escape(plain(text, newlines), quote=True)


def drawn(text: object, limit: int = LIMIT) -> str:
    """For a figure whose style has no mathematics (``text.parse_math``); matplotlib leaves names that start with '_' out of legends."""
    line = shown(text, limit)
    return f" {line}" if line.startswith("_") else line


# --- Markdown ----------------------------------------------------------------------------------------------------------------------------


def markdown_text(text: object) -> str:
    """For Markdown: no tag, link, picture, code, mathematics or cell border, and no heading or list at the start of a line."""
    line = re.sub(r"([\\`*_|<>\[\]~&$])", r"\\\1", plain(text))
    line = re.sub(
        r"(://|\bwww\.)", lambda found: found[0].replace(":", r"\:").replace(".", r"\."), line
    )  # else a bare address is a link
    line = re.sub(r"^\s+", "", line)  # four spaces would be code
    return re.sub(r"^(?=[#+=-](?:[#+=\s-]|$))|^(\d+)(?=[.)](?:\s|$))", r"\1\\", line)


def markdown_code(text: object) -> str:
    """A short name between backticks."""
    return f"`{shown(text).replace('`', chr(39)) or ' '}`"


# --- LaTeX -------------------------------------------------------------------------------------------------------------------------------

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
    """For LaTeX: every character that means something comes out as itself."""
    return re.sub(r"[\\±†‡–~^≤−<>×#$%&_{}]", lambda found: _TEX.get(found[0], f"\\{found[0]}"), plain(text))


def latex_label(name: object) -> str:
    """For ``\\label``, which takes no escapes: ASCII letters, digits and harmless signs."""
    return re.sub(r"[^A-Za-z0-9_.:-]+", "-", str(name))


# --- CSV ---------------------------------------------------------------------------------------------------------------------------------

_FORMULA = re.compile(r"'*[=+\-@\t\r\n＝＋－＠]")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def csv_text(rows: Iterable[Sequence[object]], fit: Callable[[str], str] = whole) -> str:
    """Rows as CSV. A text that a spreadsheet would take for a formula gets an apostrophe in front, as OWASP advises; numbers do not.

    Whoever reads the names back removes one apostrophe before what starts with '=', '+', '-', '@', tab or line end, or with more
    apostrophes before these.
    """
    lines = []
    for row in rows:
        file = io.StringIO(newline="")
        writer = csv.writer(
            file, lineterminator="\r\n"
        )  # it quotes what its line end has: without '\r' a cell could start a row
        writer.writerow([_cell(fit(value)) if isinstance(value, str) else value for value in row])
        lines.append(file.getvalue()[:-2])
    return "".join(f"{line}\n" for line in lines)


def _cell(text: str) -> str:
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text
