"""The help of a command, kept since it was first shown.

It names every setting of a method, and a method's module imports torch, which takes seconds. So the text is
kept (``fedepd.cache``) until a file of this package, the version of Python or the terminal's width changes.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stdout
from pathlib import Path

from fedepd.cli.console import say_table

FLAGS = ("-h", "--help")
WORD = re.compile(r"[a-z][a-z0-9_-]{0,39}")
MOST_WORDS = 3
PACKAGE = Path(__file__).resolve().parents[1]


def asks_for_help(arguments: Sequence[str]) -> bool:
    """Whether this is a command's name, perhaps a method's or an action's, and then --help."""
    *words, last = arguments
    return last in FLAGS and 1 <= len(words) <= MOST_WORDS and all(map(WORD.fullmatch, words))


def show_help(arguments: Sequence[str], command: Callable[[], int]) -> int:
    """Show what ``command`` says to these arguments, without running it where that is known.

    Args:
        arguments: all that was typed; ``asks_for_help`` holds for it.
        command: runs the command with its own arguments.

    Returns:
        The exit code.
    """
    if _has_plugins():
        return _run(command)
    # Only now: it imports numpy, and needs a tenth of a second.
    import numpy as np

    from fedepd.cache import remembered

    def compute() -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
        with redirect_stdout(io.StringIO()) as said:
            code = _run(command)
        if code != 0:
            raise SystemExit(code)
        return np.frombuffer(said.getvalue().encode(), dtype=np.uint8)

    width = shutil.get_terminal_size().columns
    text = remembered("help", (*arguments, width, sys.version, *_stamps(PACKAGE)), compute)
    say_table(text.tobytes().decode())
    return 0


def _run(command: Callable[[], int]) -> int:
    """argparse ends the process after its help. Here that is an exit code like every other."""
    try:
        return command()
    except SystemExit as end:
        return int(end.code or 0)


def _has_plugins() -> bool:
    """Whether other packages bring names. Their files may change without notice, so no help is kept."""
    try:
        from importlib.metadata import entry_points

        return any(group.startswith("fedepd.") for group in entry_points().groups)
    except Exception:  # metadata of a package that is installed badly
        return True


def _stamps(folder: Path) -> Iterator[tuple[str, int, int]]:
    """Every file of a folder, with its size and its time of change, in order."""
    for entry in sorted(os.scandir(folder), key=lambda each: each.name):
        if entry.is_dir():
            if entry.name != "__pycache__":
                yield from _stamps(Path(entry.path))
        else:
            facts = entry.stat()
            yield entry.path, facts.st_size, facts.st_mtime_ns
