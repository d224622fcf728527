"""The rounds of a run, read while it writes them: each line once, without reading the file again.

This module imports no training code, so that a page can use it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from fedepd.errors import BadData
from fedepd.files import MAX_JSON_BYTES, open_regular, parse_json, without_halves
from fedepd.runs.folder import ROUND_FIELDS, ROUNDS, Json, called
from fedepd.shapes import DAMAGED, expect

PART = 2**20
"""Most bytes that are read at a time. A longer line was not written by this package."""


class Counted(NamedTuple):
    """How many rounds a file held when it was last looked at."""

    rounds: int = 0
    size: int = 0
    file: tuple[int, int] = (0, 0)


def counted(folder: Path, before: Counted) -> Counted:
    """The number of rounds now. Of a file that has grown, only the new part is read."""
    try:
        with open_regular(folder / ROUNDS) as file:
            status = os.fstat(file.fileno())
            identity = status.st_dev, status.st_ino
            if status.st_size > MAX_JSON_BYTES:
                return Counted()
            if identity != before.file or status.st_size < before.size:
                before = Counted(file=identity)
            file.seek(before.size)
            fresh = file.read(status.st_size - before.size)
            return Counted(before.rounds + fresh.count(b"\n"), before.size + len(fresh), identity)
    except OSError:  # not there yet
        return Counted()


class Follower:
    """Gives the rounds of a run that are new since it was last asked.

    A resumed run writes the file anew and repeats rounds, with the same bits. They are not given again.

    Examples:
        >>> import fedepd
        >>> from pathlib import Path
        >>> from fedepd.runs.follow import Follower
        >>> _ = fedepd.run("synthetic", "fedavg", rounds=3, clients=3, out="runs/followed")
        >>> follower = Follower(Path("runs/followed"), after=1)
        >>> [line["round"] for line in follower.more()]
        [2, 3]
        >>> follower.more()
        []
    """

    def __init__(self, folder: Path, after: int = 0) -> None:
        self._folder, self._last = folder, after
        self._offset, self._file = 0, (0, 0)

    def more(self) -> list[Json]:
        """The new rounds, in order. At most a megabyte of them: ask again until there are none.

        Raises:
            BadData: A line is not what a run writes.
        """
        name = f"'{called(self._folder, ROUNDS)}'"
        content = self._read(name)
        end = content.rfind(b"\n") + 1
        if not end and len(content) == PART:
            raise BadData(f"{name} has a line of more than {PART:,} bytes; {DAMAGED}")
        self._offset += end
        lines = [parse_json(line, name, DAMAGED) for line in content[:end].splitlines() if line.strip()]
        expect(lines, [ROUND_FIELDS], name)
        fresh: list[Json] = []
        for line in lines:
            if line["round"] > self._last:
                self._last = line["round"]
                fresh.append(without_halves(line))
        if lines and not fresh:  # a part in which every round is known already
            return self.more()
        return fresh

    def _read(self, name: str) -> bytes:
        try:
            with open_regular(self._folder / ROUNDS) as file:
                status = os.fstat(file.fileno())
                if status.st_size > MAX_JSON_BYTES:
                    raise BadData(f"{name} has more than {MAX_JSON_BYTES:,} bytes; {DAMAGED}")
                identity = status.st_dev, status.st_ino
                if identity != self._file or status.st_size < self._offset:
                    self._file, self._offset = identity, 0
                file.seek(self._offset)
                return file.read(PART)
        except FileNotFoundError:  # no round yet
            return b""
        except OSError as cause:
            raise BadData(f"{name} cannot be read ({cause.strerror}); {DAMAGED}") from cause
