"""The settings that a search found, as a TOML file that ``run``, ``compare`` and ``reproduce`` take."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fedepd import files
from fedepd.errors import BadConfig, BadData, FedEPDError
from fedepd.runs.experiment import Experiment, setting_owners
from fedepd.shapes import EVERY, FLAG, NUMBER, SHARE, TEXT, Table, expect, whole
from fedepd.shown import shown

FORMAT = 1
"""Of the file. Another one is refused."""
GROUPS = ("model", "training", "method")
"""Where a tuned setting may come from. A search does not change the data, the split or the scores."""
AGAIN = "make a new one with 'fedepd tune'"
FIELDS: Table = {
    "format": whole(1),
    "fedepd": TEXT,
    "search": {
        "data": [TEXT],
        "trials": whole(1),
        "extra": whole(),
        "rounds": whole(1),
        "seeds": [whole()],
        "vault": SHARE,
        "per_graph": FLAG,
        "objective": TEXT,
    },
    "tuned": [
        {
            "method": TEXT,
            "preset": TEXT,
            "data?": TEXT,
            "score": NUMBER,
            "trial": whole(),
            "settings": {EVERY: NUMBER},
        }
    ],
}


@dataclass(frozen=True)
class Entry:
    """The best settings of one method, on all graphs or on one."""

    method: str
    preset: str
    score: float
    """What the search reached, on validation nodes."""
    trial: int
    settings: Mapping[str, Any]
    data: str | None = None
    """A graph's name; None: for all graphs."""


@dataclass(frozen=True)
class TunedFile:
    """What a file of tuned settings holds."""

    path: Path
    entries: tuple[Entry, ...]
    vault: float
    """What the search could not see: the share of each class that was set aside."""
    search: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, path: str | Path) -> TunedFile:
        """Read and check a file. Every setting in it must still exist.

        Raises:
            BadConfig: The file cannot be read, or its settings cannot be used.
            BadData: It is no such file.
        """
        path = Path(path)
        where = f"'{shown(path, 300)}'"
        content = files.read_toml(path, f"the tuned settings {where}")
        if isinstance(content.get("format"), int) and content["format"] != FORMAT:
            raise BadData(
                f"{where} has format {shown(content['format'])}, and this version of fedepd reads format "
                f"{FORMAT}; {AGAIN}"
            )
        expect(content, FIELDS, where, AGAIN)
        entries = tuple(Entry(**each) for each in content["tuned"])
        for entry in entries:
            _check(entry, where)
        keys = [(entry.method, entry.preset, entry.data) for entry in entries]
        if twice := next((each for each in keys if keys.count(each) > 1), None):
            raise BadData(f"{where} has '{shown(twice[0])}' twice; {AGAIN}")
        return cls(path, entries, float(content["search"]["vault"]), content["search"])

    def settings_of(self, method: str, preset: str, data: str | None) -> Mapping[str, Any] | None:
        """The settings of a method on a graph, or None where the file has none."""
        for entry in self.entries:
            fits = entry.data is None or (data is not None and same_data(entry.data, data))
            if (entry.method, entry.preset) == (method, preset) and fits:
                return entry.settings
        return None

    def applied(
        self, method: str, preset: str, data: str | None, given: Mapping[str, Any], needed: bool = True
    ) -> dict[str, Any]:
        """``given`` settings together with the tuned ones.

        Args:
            method: Its name.
            preset: Its preset.
            data: The graph's name or file.
            given: What the user gave. A tuned setting among it is refused, because it is not clear which
                of the two was meant.
            needed: Whether the file must have settings for the method.

        Returns:
            All settings.

        Raises:
            BadConfig: There are none for the method, one is given twice, or scores would be of nodes that
                the search has seen.
        """
        where, own = f"'{shown(self.path, 300)}'", self.settings_of(method, preset, data)
        if own is None and needed:
            known = ", ".join(dict.fromkeys(_spelled(entry) for entry in self.entries))
            what = method if preset == "default" else f"{method}:{preset}"
            raise BadConfig(f"{where} has no settings for {shown(what)} here; it has: {shown(known, 300)}")
        own = own or {}
        if both := [name for name in own if name in given]:
            raise BadConfig(
                f"{both[0]} is given, and {where} has a tuned one for {method}; leave one of the two out"
            )
        split = Experiment.recorded(method, preset, given).split
        if split.score_on == "vault":
            self.check_vault(split.vault)
        return {**given, **own}

    def check_vault(self, share: float) -> None:
        """Refuse a vault of which the search could see nodes."""
        if share > self.vault:
            raise BadConfig(
                f"vault is {share:g}, but the search of '{shown(self.path, 300)}' had {self.vault:g}, so it "
                "saw nodes that would be scored; tune again with the same --vault"
            )

    def for_all(
        self, methods: Sequence[tuple[str, str]], data: str | None, given: Mapping[str, Any]
    ) -> dict[tuple[str, str], dict[str, Any]]:
        """The same for several methods with their presets, of which the file must have one."""
        if not any(self.settings_of(*pair, data) is not None for pair in methods):
            self.applied(*methods[0], data, given)  # says which there are
        return {pair: self.applied(*pair, data, given, needed=False) for pair in methods}


def same_data(one: str, other: str) -> bool:
    """Whether two names or files mean the same graph, wherever its file is."""
    first, second = (Path(each).stem if each.endswith(".npz") else each for each in (one, other))
    return first == second


def _spelled(entry: Entry) -> str:
    name = entry.method if entry.preset == "default" else f"{entry.method}:{entry.preset}"
    return name if entry.data is None else f"{name} on {entry.data}"


def _check(entry: Entry, where: str) -> None:
    """Refuse settings that are no more, or that no search may choose."""
    try:
        owners = setting_owners(entry.method)
        Experiment.recorded(entry.method, entry.preset, entry.settings)
    except FedEPDError as cause:
        raise BadConfig(f"{where}: {cause}") from cause
    for name in entry.settings:
        if owners.get(name, ("method",))[0] not in GROUPS:
            raise BadConfig(f"{where}: '{shown(name)}' is no setting that a search may choose; remove it")


def as_toml(entries: Iterable[Entry], search: Mapping[str, Any], comments: Sequence[str] = ()) -> str:
    """The text of a file that ``TunedFile.read`` reads."""
    lines = [
        *(f"# {line}" for line in comments),
        f"format = {FORMAT}",
        f"fedepd = {_value(version('fedepd'))}",
    ]
    lines += ["", "[search]", *(f"{name} = {_value(value)}" for name, value in search.items())]
    for entry in entries:
        lines += ["", "[[tuned]]", f"method = {_value(entry.method)}", f"preset = {_value(entry.preset)}"]
        lines += [f"data = {_value(entry.data)}"] if entry.data is not None else []
        lines += [f"score = {_value(entry.score)}", f"trial = {entry.trial}", "[tuned.settings]"]
        lines += [f"{name} = {_value(value)}" for name, value in entry.settings.items()]
    return "\n".join(lines) + "\n"


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return '"' + shown(value, 300).replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    return repr(value)
