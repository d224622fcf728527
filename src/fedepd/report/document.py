"""A self-contained page from its parts. It makes no network request."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from pathlib import Path

from fedepd.errors import BadConfig
from fedepd.files import write_text
from fedepd.report.drawing import Drawing
from fedepd.shown import html_text, sentence, shown, slug

POLICY = (
    "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:; script-src {script}; "
    "style-src 'unsafe-inline'; style-src-elem {style}; style-src-attr 'unsafe-inline'"
)
"""The page's content security policy. It allows our script and style by their hashes, and nothing that came
with data.

Choice: style attributes are allowed. matplotlib puts one on every line it draws, so their hashes would be
thousands, and they cannot fetch anything. ``style-src`` itself is for browsers that do not know the two
narrower directives.
"""


def document(
    title: str,
    scope: str,
    links: Mapping[str, str],
    sections: Iterable[str],
    foot: str,
    last: str = "Protocol, settings, hashes",
    answer: Sequence[str] = (),
    more: str = "",
) -> str:
    """A whole HTML page from its parts.

    ``links`` maps an id to the text of its link. The footer has the id protocol, and ``last`` is the text of
    its link. ``answer``: what the page is read for, in sentences. They come first, then what ``more`` adds to
    them, and the title is small.
    """
    asset = resources.files("fedepd.report")
    script, style = (
        "\n" + asset.joinpath(name).read_text(encoding="utf-8") for name in ("page.js", "page.css")
    )
    policy = POLICY.format(script=_hash(script), style=_hash(style))
    jumps = "".join(f'<a href="#{slug(place)}">{html_text(text)}</a>' for place, text in links.items())
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<link rel="icon" href="data:,">
<title>{html_text(title)}</title>
<style>{style}</style>
</head>
<body>
<header>
{_top(title, scope, answer, more)}
<nav>{jumps}<a href="#protocol">{html_text(last)}</a></nav>
</header>
<main>
{"".join(sections)}</main>
{foot}
<script>{script}</script>
</body>
</html>
"""


def _top(title: str, scope: str, answer: Sequence[str], more: str) -> str:
    if not answer:
        return f"<h1>{html_text(title)}</h1>\n<p>{html_text(scope)}</p>"
    lines = "".join(f"<span>{html_text(each)}</span>" for each in answer).replace(" %", "&nbsp;%")
    beside = f"<p>{html_text(more)}</p>\n" if more else ""
    about = f'<p class="about"><span>{html_text(title)}</span> {html_text(scope)}</p>'
    return f'<h1 class="answer">{lines}</h1>\n{beside}{about}'


def _hash(content: str) -> str:
    """The hash by which a content security policy allows an element with this content."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


def section(title: str, content: str) -> str:
    return f"<h3>{html_text(title)}</h3>{content}\n"


def part(title: str, content: str, opened: bool = False) -> str:
    """A section that a reader folds and unfolds. On paper it is open."""
    state = " open" if opened else ""
    return f'<details class="part"{state}><summary><h3>{html_text(title)}</h3></summary>{content}</details>\n'


def fold(title: str, content: str) -> str:
    """Something small inside a section, folded away."""
    return f"<details><summary>{html_text(title)}</summary>{content}</details>"


def figure(svg: str, caption: str) -> str:
    """A drawing with its caption."""
    return f"<figure><div>{svg}</div><figcaption>{html_text(caption)}</figcaption></figure>"


def both(drawing: Drawing, caption: str) -> str:
    """A drawing that a phone shows whole, because it is there once more, for a narrow screen."""
    wide, narrow = f'<div class="wide">{drawing}</div>', f'<div class="narrow">{drawing.narrow()}</div>'
    return f"<figure>{wide}{narrow}<figcaption>{html_text(caption)}</figcaption></figure>"


def paragraphs(lines: Iterable[str]) -> str:
    return "".join(f"<p>{html_text(sentence(line))}</p>" for line in lines)


def write_page(target: Path, text: str) -> None:
    """Write the whole file or nothing."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write_text(target, text)
    except (OSError, BadConfig) as error:
        why = getattr(error.__cause__ or error, "strerror", None) or "the name cannot be used"
        raise BadConfig(
            f"cannot write the report to '{shown(target, 300)}' ({why}); name another place with --out"
        ) from None
