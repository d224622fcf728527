"""Every setting of ``fedepd run METHOD`` with its help, as JSON for a form.

``python -m fedepd.board.settings METHOD`` prints it. The board asks in a process of its own, because the
settings are declared beside the training code, which a page that waits for rounds need not hold in memory.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import fields
from typing import Any, get_type_hints

from fedepd.errors import BadConfig, FedEPDError
from fedepd.options import choices_of
from fedepd.shown import sentence

Json = dict[str, Any]
PATIENCE = 180.0
"""Seconds that the answer may take."""


def described(method: str) -> Json:
    """The method's presets and settings, those of all runs, and the names of all methods."""
    from fedepd.methods import METHODS, method_class
    from fedepd.network.backbones import AUTO
    from fedepd.runs.experiment import GROUPS

    own = method_class(method)
    groups = {f"settings of {own.label}": own, **GROUPS}
    return {
        "methods": list(METHODS.names()),
        "presets": list(own.presets),
        "groups": [
            {"title": title, "settings": settings_of(cls, {"backbone": AUTO})}
            for title, cls in groups.items()
        ],
    }


def settings_of(cls: type[Any], defaults: Json) -> list[Json]:
    """Name, values, default and help of each field. ``defaults`` are those of ``fedepd run``."""
    hints = get_type_hints(cls)
    return [
        {
            "name": field.name,
            "switch": hints[field.name] is bool,
            "choices": [str(choice) for choice in choices_of(field, hints[field.name])],
            "default": str(defaults.get(field.name, field.default)),
            "help": field.metadata["help"],
        }
        for field in fields(cls)
    ]


class Settings:
    """Asks for the settings of a method once, and remembers them."""

    def __init__(self) -> None:
        self._known: dict[str, Json] = {}

    def of(self, method: str) -> Json:
        """What ``described`` gives, from a process of its own."""
        if method not in self._known:
            self._known[method] = _asked(method)
        return self._known[method]


def _asked(method: str) -> Json:
    command = [sys.executable, "-m", "fedepd.board.settings", method]
    try:
        done = subprocess.run(command, capture_output=True, timeout=PATIENCE, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired as cause:
        raise BadConfig(f"the settings were not there after {PATIENCE:.0f} seconds; try again") from cause
    if done.returncode:
        raise BadConfig(sentence(done.stderr.decode("utf-8", "replace").strip(), 600) or "no settings came")
    found: Json = json.loads(done.stdout)
    return found


def main(arguments: Sequence[str]) -> int:
    try:
        sys.stdout.write(json.dumps(described(arguments[0])))
        return 0
    except FedEPDError as mistake:
        sys.stderr.write(f"{sentence(mistake)}\n")
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
