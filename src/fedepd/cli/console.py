"""The only file that prints. Whatever stands in a line, it stays one line and steers no terminal."""

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
    """Results, line by line."""
    for line in lines:
        print(plain(line))


def say_table(text: str) -> None:
    """Several lines whose cells are plain already, as they are."""
    print(plain(text, newlines=True), end="")


def say_json(content: object) -> None:
    """One JSON object, all of it ASCII that can be seen."""
    from fedepd.files import clean

    print(json.dumps(clean(content)).replace("\x7f", "\\u007f"))


def complain(text: object) -> None:
    """One sentence for a person."""
    mention(f"fedepd: {text}")


def mention(text: object) -> None:
    """What is going on, beside the results."""
    print(sentence(text), file=sys.stderr)


def console(stderr: bool = False) -> Console:
    """Names and paths are shown as they are: brackets and colons in them mean nothing, and control characters do not get through."""
    from rich.console import Console
    from rich.segment import Segment

    class PlainConsole(Console):
        def render_str(self, text: str, **options: Any) -> Text:
            """Of every string, before anything is measured: a cell stays on its line."""
            return super().render_str(plain(text), **options)

        def render(
            self, renderable: RenderableType, options: ConsoleOptions | None = None
        ) -> Iterator[Segment]:
            """Of all else, such as the text of a progress display."""
            for text, style, control in super().render(renderable, options):
                yield Segment(text if control else plain(text, newlines=True), style, control)

    return PlainConsole(stderr=stderr, markup=False, emoji=False, highlight=False)


@contextmanager
def progress_bar(text: str, total: int, quiet: bool) -> Iterator[Callable[[int], None]]:
    """Nothing where stderr is not a terminal."""
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
