"""The only file that prints. Control characters are removed, so a line stays one line whatever it holds."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from fedepd.shown import plain, sentence, shown

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment
    from rich.text import Text


def say(*lines: object) -> None:
    """Print results, line by line."""
    for line in lines:
        print(plain(line))


def say_table(text: str) -> None:
    """Print a table of several lines whose cells are already plain."""
    print(plain(text, newlines=True), end="")


def say_json(content: object) -> None:
    """Print one JSON object in printable ASCII."""
    from fedepd.files import clean

    print(json.dumps(clean(content)).replace("\x7f", "\\u007f"))


def complain(text: object) -> None:
    """Print an error or a warning as one sentence on stderr."""
    mention(f"fedepd: {text}")


def mention(text: object) -> None:
    """Print on stderr what is going on, apart from the results."""
    print(sentence(text), file=sys.stderr)


def console(stderr: bool = False) -> Console:
    """A rich console that shows names and paths as they are.

    Brackets and colons in them are not markup, and control characters are removed.
    """
    from rich.console import Console
    from rich.segment import Segment

    class PlainConsole(Console):
        def render_str(self, text: str, **options: Any) -> Text:
            """Clean every string before it is measured, so that a cell stays on its line."""
            return super().render_str(plain(text), **options)

        def render(
            self, renderable: RenderableType, options: ConsoleOptions | None = None
        ) -> Iterator[Segment]:
            """Clean everything else, such as the text of a progress display."""
            for text, style, control in super().render(renderable, options):
                yield Segment(text if control else plain(text, newlines=True), style, control)

    return PlainConsole(stderr=stderr, markup=False, emoji=False, highlight=False)


@contextmanager
def progress_bar(text: str, total: int, quiet: bool) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on stderr if it is a terminal. Yields the function that advances it."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    place = console(stderr=True)
    title = TextColumn("{task.description}", markup=False)
    columns = (title, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=place, disable=quiet or not place.is_terminal, transient=True) as bar:
        task = bar.add_task(shown(text), total=total)
        yield lambda amount: bar.advance(task, amount)
