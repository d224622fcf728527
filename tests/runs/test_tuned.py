from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from fedepd.errors import BadConfig, FedEPDError
from fedepd.runs.tuned import Entry, TunedFile, as_toml, same_data

ABOUT = {
    "data": ("email", 'a "b" \\c.npz'),
    "trials": 6,
    "extra": 2,
    "rounds": 20,
    "seeds": (100, 101),
    "vault": 0.2,
    "per_graph": False,
    "objective": "validation",
}
ENTRIES = [
    Entry("fedavg", "default", 0.5, 3, {"lr": 0.03, "epochs": 5}),
    Entry("fedlc", "default", 0.25, 0, {"tau": 4.0}, "email"),
]
TEXT = as_toml(ENTRIES, ABOUT, ["a comment"])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "tuned.toml").write_text(TEXT)
    return tmp_path / "tuned.toml"


def test_what_is_written_is_read(file: Path) -> None:
    found = TunedFile.read(file)
    assert list(found.entries) == ENTRIES
    assert found.vault == 0.2
    assert tomllib.loads(TEXT)["search"]["data"] == list(ABOUT["data"])  # type: ignore[call-overload]


def test_settings_apply_to_the_methods_and_graphs_that_are_named(file: Path) -> None:
    tuned = TunedFile.read(file)
    assert tuned.applied("fedavg", "default", "cora", {"rounds": 3}) == {"rounds": 3, "lr": 0.03, "epochs": 5}
    assert tuned.applied("fedlc", "default", "/elsewhere/email.npz", {}) == {"tau": 4.0}
    assert tuned.settings_of("fedlc", "default", "cora") is None
    assert tuned.settings_of("fedlc", "default", None) is None
    both = tuned.for_all([("fedavg", "default"), ("fedproto", "default")], "cora", {"rounds": 3})
    assert both["fedproto", "default"] == {"rounds": 3}
    assert both["fedavg", "default"]["lr"] == 0.03


@pytest.mark.parametrize(
    ("method", "preset", "data", "given", "says"),
    [
        ("fedlc", "default", "cora", {}, "has no settings for fedlc here; it has: fedavg, fedlc on email"),
        ("fedepd", "printed", "cora", {}, "has no settings for fedepd:printed here"),
        ("fedavg", "default", "cora", {"lr": 0.1}, "lr is given, and"),
        (
            "fedavg", "default", "cora", {"vault": 0.3, "score_on": "vault"},
            "vault is 0.3, but the search of",
        ),
    ],
)  # fmt: skip
def test_what_does_not_fit_the_file_is_refused(
    file: Path, method: str, preset: str, data: str, given: dict[str, object], says: str
) -> None:
    with pytest.raises(BadConfig, match=re.escape(says)):
        TunedFile.read(file).applied(method, preset, data, given)
    with pytest.raises(BadConfig, match="has no settings for fedproto"):
        TunedFile.read(file).for_all([("fedproto", "default")], "cora", {})


def test_a_vault_that_the_search_has_not_seen_may_be_scored(file: Path) -> None:
    given = {"vault": 0.2, "score_on": "vault"}
    assert TunedFile.read(file).applied("fedavg", "default", "cora", given)["score_on"] == "vault"


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (
            "format = 1",
            "format = 2",
            "has format 2, and this version of fedepd reads format 1; make a new one",
        ),
        ("format = 1\n", "", "has no 'format'"),
        ("[search]", "[search", "TOML"),
        ("rounds = 20", 'rounds = "many"', "not a whole number"),
        ("lr = 0.03", "lr = true", "is true, not a finite number"),
        ("lr = 0.03", "learning_rate = 0.03", "unknown setting 'learning_rate'"),
        ("lr = 0.03", "lr = -1.0", "lr is -1.0; the learning rate must be positive"),
        ("lr = 0.03", "seed = 3", "'seed' is no setting that a search may choose"),
        ("lr = 0.03", "vault = 0.1", "'vault' is no setting that a search may choose"),
        ('method = "fedavg"', 'method = "fedavgg"', "unknown method 'fedavgg'; did you mean 'fedavg'"),
        ('preset = "default"', 'preset = "best"', "unknown preset"),
        ('method = "fedlc"\npreset = "default"\ndata = "email"', 'method = "fedavg"\npreset = "default"', ""),
    ],
)
def test_a_file_that_cannot_be_used(file: Path, old: str, new: str, says: str) -> None:
    assert old in TEXT
    file.write_text(TEXT.replace(old, new, 1))
    with pytest.raises(FedEPDError) as caught:
        TunedFile.read(file)
    assert says in str(caught.value)
    assert "tuned.toml" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(FedEPDError, match=r"nowhere\.toml"):
        TunedFile.read(tmp_path / "nowhere.toml")


def test_a_graph_is_the_same_wherever_its_file_is() -> None:
    assert same_data("email", "data/email.npz")
    assert not same_data("email", "mail")
