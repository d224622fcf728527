"""What a site remembers of the sums that it was in.

Two sums of the same numbers over different sites show a site's numbers by subtraction. So a site remembers
which sites were in a sum, and refuses a second one over others:

- ``Book`` is the memory of one run: a step that is repeated, and who is in the run.
- ``Cohorts`` is the memory of the kit: a second run over the same data under another name. The sizes of the
  same nodes are the same in every run. The same model gets the same answer in every run.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from fedepd.errors import BadData
from fedepd.files import append_line, parse_json, read_bytes
from fedepd.privacy.secure_sum import SecureSumFailed
from fedepd.shown import listed, shown

MAX_BOOK = 64 * 2**20
"""Largest size in bytes of a file that remembers sums."""
COHORTS = "cohorts.jsonl"
"""The kit's file in the folder of answers. No run's file has this name."""

Members = Sequence[int] | Sequence[str]


class Book:
    """A set for each name: one line of a file for each, read again after a restart."""

    def __init__(self, path: Path, kind: type = int) -> None:
        """``kind``: sets of numbers of sites, or of texts."""
        self._path, self._known = path, dict[str, list[int | str]]()
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not path.exists():
            return
        for number, line in enumerate(read_bytes(path, MAX_BOOK).splitlines(), 1):
            content = parse_json(line, f"line {number} of '{shown(path, 200)}'")
            if (
                not isinstance(content, dict)
                or sorted(content) != ["set", "sum"]
                or not isinstance(content["sum"], str)
                or not isinstance(content["set"], list)
                or not all(type(each) is kind for each in content["set"])
            ):
                raise BadData(
                    f"line {number} of '{shown(path, 200)}' does not name a sum and its sites; restore the "
                    "file, or refuse further runs with this coordinator"
                )
            self._known[content["sum"]] = content["set"]

    def get(self, name: str) -> list[int | str] | None:
        return self._known.get(name)

    def differs(self, name: str, members: Members) -> bool:
        """Whether another set is known under this name."""
        known = self._known.get(name)
        return known is not None and known != sorted(members)

    def check(self, name: str, members: Members, fault: str) -> None:
        """Remember ``members``, or refuse them if they were others before."""
        if self.differs(name, members):
            raise SecureSumFailed(fault)
        self.remember(name, members)

    def remember(self, name: str, members: Members) -> None:
        given: list[int | str] = sorted(members)
        if self._known.get(name) != given:
            append_line(self._path, {"sum": name, "set": given})
            self._known[name] = given


class Cohorts:
    """With which sites a site's data were summed, in all runs of its kit.

    Choice: the same data are those with the same labels and edges. Sizes follow from the labels alone, and
    the coordinator can choose other features for the same file.
    """

    def __init__(self, path: Path, data: str, sites: Sequence[str], may_differ: bool) -> None:
        """``data`` is the hash of the site's nodes."""
        self._book, self._data = Book(path, str), data
        self._sites, self._may_differ = tuple(sites), may_differ

    def refusal(self) -> str | None:
        """Why a run with these sites is refused before it begins; None if it may be the same cohort."""
        known = self._book.get(self._data)
        if self._may_differ or known is None or set(known) <= set(self._sites):
            return None
        return self._fault(known)

    def fault(self, purpose: str, message: bytes, survivors: Sequence[int]) -> str | None:
        """Why the sum over these sites is refused; None if it is not.

        ``message`` is the hash of what is answered.
        """
        if self._may_differ:
            return None
        names = [self._sites[k] for k in survivors]
        if purpose == "sizes":
            known = self._book.get(self._data) or []
            return self._fault(known) if self._book.differs(self._data, names) else None
        if self._book.differs(self._name(purpose, message), _hashed(names)):
            return f"the same {purpose} was summed before, in another run or round and over other sites{CURE}"
        return None

    def remember(self, purpose: str, message: bytes, survivors: Sequence[int]) -> None:
        names = [self._sites[k] for k in survivors]
        if purpose == "sizes":
            self._book.remember(self._data, names)
        else:
            self._book.remember(self._name(purpose, message), _hashed(names))

    def _name(self, purpose: str, message: bytes) -> str:
        return hashlib.sha256(json.dumps([self._data, purpose, message.hex()]).encode()).hexdigest()

    def _fault(self, known: list[int | str]) -> str:
        return f"the same data were summed before with other sites ({listed(known)}){CURE}"


CURE = (
    "; the difference of two such sums can show one site's numbers; ask for a run with the same sites, "
    "or write 'new_cohorts = true' into limits.toml if you agree"
)


def _hashed(names: Sequence[str]) -> list[str]:
    """So that a line is short: there is one for every sum of every run."""
    return [hashlib.sha256(json.dumps(sorted(names)).encode()).hexdigest()]
