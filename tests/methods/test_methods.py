"""Methods by name: presets, settings, and the names that are none."""

from __future__ import annotations

import pytest

from fedepd.errors import BadConfig, UnknownName
from fedepd.methods import METHODS, make_method, preset_now
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


def test_an_old_name_of_a_preset_is_refused_with_the_new_one() -> None:
    for name, cls in METHODS.items():
        assert "official" not in cls.presets
        if "authors_values" in cls.presets:
            with pytest.raises(BadConfig, match=f"'official' of {name} is now called 'authors_values'"):
                make_method(name, "official")
            assert preset_now(cls, "official") == "authors_values"
    with pytest.raises(UnknownName, match="official"):
        make_method("fedavg", "official")
    assert preset_now(FedLC, "default") == "default"


def test_unknown_names_are_guessed() -> None:
    with pytest.raises(UnknownName, match="did you mean 'fedavg'"):
        make_method("fedavgg")
    with pytest.raises(UnknownName, match="did you mean 'printed'"):
        make_method("fedepd", "printd")
    with pytest.raises(UnknownName, match="did you mean 'tau'"):
        make_method("fedlc", settings={"tao": 1})
    with pytest.raises(BadConfig, match="fedavg has no settings"):
        make_method("fedavg", settings={"tau": 1})
