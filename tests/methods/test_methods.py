"""Methods by name: presets, settings, and the names that are none."""

from __future__ import annotations

import pytest

from fedepd.errors import BadConfig, UnknownName
from fedepd.methods import METHODS, make_method
from fedepd.methods.fedlc import FedLC


def test_settings_win_over_the_preset() -> None:
    assert make_method("fedlc") == FedLC()
    assert make_method("fedlc", settings={"tau": 0.5}) == FedLC(tau=0.5)
    for name, cls in METHODS.items():
        for preset, values in cls.presets.items():
            assert make_method(name, preset) == cls(**values)


def test_labels_differ() -> None:
    labels = [cls.label for cls in METHODS.values()]
    assert len(set(labels)) == len(labels)


def test_unknown_names_are_guessed() -> None:
    with pytest.raises(UnknownName, match="did you mean 'fedavg'"):
        make_method("fedavgg")
    with pytest.raises(UnknownName, match="did you mean 'printed'"):
        make_method("fedepd", "printd")
    with pytest.raises(UnknownName, match="did you mean 'tau'"):
        make_method("fedlc", settings={"tao": 1})
    with pytest.raises(BadConfig, match="fedavg has no settings"):
        make_method("fedavg", settings={"tau": 1})
