"""Settings under one flat set of names, from Python, TOML and the command line."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args, get_origin

import pytest

from fedepd.errors import BadConfig, FedEPDError, UnknownName
from fedepd.methods import METHODS
from fedepd.methods.fedepd.method import FedEPD
from fedepd.network.gat import GAT
from fedepd.network.mlp import MLP
from fedepd.runs.experiment import GROUPS, Experiment, setting_owners

SAMPLE: dict[str, Any] = {"clients": 4, "train_share": 0.5, "val_share": 0.3, "head": "linear"}


def other_value(name: str, kind: Any, value: Any) -> Any:
    """A legal value that differs from ``value``."""
    if get_origin(kind) is Literal:
        return next(choice for choice in get_args(kind) if choice != value)
    if kind is str:
        texts = {"partition": "balanced", "start": "model", "corrupt": "edges=0.1", "aim": "recall 1=0.8"}
        return {**texts, "widths": "16-32"}[name]
    if name == "backbone":
        return "sage"
    if kind is bool:
        return not value
    if kind is int:
        return value + 1
    if value is None:
        return 0.5
    return value * 0.75 if value else 0.25


def test_flat_settings_reach_their_group() -> None:
    made = Experiment.make("fedepd", clients=3, split="keep_one", hidden=8, lr=0.1, rounds=7, mu=0.25)
    assert (made.partition.clients, made.split.split, made.model.hidden) == (3, "keep_one", 8)
    assert isinstance(made.method, FedEPD)
    assert (made.training.lr, made.protocol.rounds, made.method.mu) == (0.1, 7, 0.25)


@pytest.mark.parametrize("method", METHODS)
def test_no_name_has_two_meanings(method: str) -> None:
    owners = setting_owners(method)
    assert len(owners) == sum(len(fields(cls)) for cls in (*GROUPS.values(), METHODS[method]))


@pytest.mark.parametrize("method", METHODS)
def test_every_setting_moves_the_hash(method: str) -> None:
    plain = Experiment.make(method)
    default = {name: value for group in plain.resolved().values() for name, value in group.items()}
    hashes = {plain.config_hash("data")}
    owners = setting_owners(method)
    for name, (_, kind) in owners.items():
        with_partner: dict[str, Any] = (
            {"consensus_by": "injection"} if (method, name) == ("fedepd", "elites") else {}
        )  # rehearsal refuses the other value
        if name == "dp_epsilon":
            with_partner = {"secure": True}  # it is refused alone
        if name == "score_on":
            with_partner = {"vault": 0.2}  # it is refused alone
        hashes.add(
            Experiment.recorded(
                method, "default", {**with_partner, name: other_value(name, kind, default[name])}
            ).config_hash("data")
        )
    assert len(hashes) == len(owners) + 1


def test_hash_depends_on_data_and_method_but_not_on_how_it_was_spelled() -> None:
    one = Experiment.make("fedepd", **SAMPLE).config_hash("data")
    assert Experiment.make("fedepd", **dict(reversed(SAMPLE.items()))).config_hash("data") == one
    assert (
        Experiment.make("fedepd", **SAMPLE, rounds="200", lr="1e-2").config_hash("data") == one
    )  # the defaults, as a shell gives them
    assert Experiment.make("fedepd", **SAMPLE).config_hash("other data") != one
    assert Experiment.make("fedavg", **SAMPLE).config_hash("data") != one


LATER = ("adapt", "start", "scope", "edges", "pruned", "corrupt", "aim")
"""Settings of the protocol that came later."""


def test_what_came_later_is_not_in_the_hash_at_its_default() -> None:
    """Runs from before have none of these: their hashes must not change."""
    settings = Experiment.make("fedavg").resolved()
    del settings["method"]["preset"], settings["model"]["layers"]
    del settings["defence"], settings["attack"], settings["privacy"]
    for name in LATER:
        del settings["protocol"][name]
    del settings["split"]["vault"], settings["split"]["score_on"]
    text = json.dumps([settings, "data"], sort_keys=True)
    before = hashlib.sha256(text.encode()).hexdigest()[:12]
    assert Experiment.make("fedavg", layers=2).config_hash("data") == before
    assert Experiment.make("fedavg", layers=3).config_hash("data") != before


def test_a_methods_later_settings_are_not_in_the_hash_at_their_default() -> None:
    settings = Experiment.make("fedspray").resolved()
    del settings["method"]["preset"], settings["model"]["layers"]
    del settings["defence"], settings["attack"], settings["privacy"]
    for name in LATER:
        del settings["protocol"][name]
    del settings["split"]["vault"], settings["split"]["score_on"], settings["method"]["dropout_own"]
    text = json.dumps([settings, "data"], sort_keys=True)
    assert Experiment.make("fedspray").config_hash("data") == hashlib.sha256(text.encode()).hexdigest()[:12]
    assert (
        Experiment.make("fedspray", dropout_own=True).config_hash("data")
        != hashlib.sha256(text.encode()).hexdigest()[:12]
    )


def test_a_method_whose_results_changed_has_another_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    now = Experiment.make("hiertail").config_hash("data")
    monkeypatch.setattr(type(Experiment.make("hiertail").method), "revision", 1)
    before = Experiment.make("hiertail").config_hash("data")
    assert now != before


def test_old_files_may_name_a_preset_by_its_old_name() -> None:
    """People get the new name instead."""
    assert Experiment.recorded("lws", "official", {}) == Experiment.make("lws", "authors_values")
    with pytest.raises(BadConfig, match="is now called 'authors_values'"):
        Experiment.make("lws", "official")


@dataclass(frozen=True)
class Mine(MLP):  # type: ignore[misc]
    steps: int = 1


def test_a_backbone_may_be_an_object() -> None:
    """Described by its name, or its class where it has none, and its settings; these are in the hash."""
    hashes = {
        Experiment.make("fedavg", backbone=each).config_hash("data")
        for each in ("mlp", MLP(), Mine(), Mine(2), "gat", GAT(), GAT(attentions=2))
    }
    assert len(hashes) == 5  # mlp, Mine twice, gat, gat with fewer heads
    resolved = Experiment.make("fedavg", backbone=Mine(2)).resolved()["model"]
    assert resolved["backbone"] == {"class": "Mine", "steps": 2}
    assert "Mine hidden 64" in Experiment.make("fedavg", backbone=Mine()).sentence()
    assert "3 layers" in Experiment.make("fedavg", layers=3).sentence()


def test_a_described_backbone_is_read_again() -> None:
    for each in (GAT(attentions=2), "gat"):
        made = Experiment.make("fedavg", backbone=each)
        again = Experiment.make("fedavg", backbone=made.resolved()["model"]["backbone"])
        assert again == made


@pytest.mark.hostile
@pytest.mark.parametrize(
    ("found", "says"),
    [
        ({"class": "Mine", "steps": 1}, "Mine is an object of a Python program"),
        ({"class": "\x1b[2J"}, "is an object of a Python program"),
        ({"name": "gnc"}, "unknown value of backbone 'gnc'"),
        ({"name": ["gat"]}, "unknown value of backbone"),
        ({}, "unknown value of backbone"),
        ({"name": "gat", "heads": 2}, "unknown setting of the backbone gat 'heads'"),
        ({"name": "gat", "attentions": 1.5}, "attentions is '1.5'"),
        ({"name": "gat", "attentions": 0}, "heads of attention"),
        ({"name": "gat", "slope": "nan"}, "slope is 'nan'"),
        ("x" * 10**6, "unknown value of backbone"),
        (7, "unknown value of backbone '7'"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_is_no_backbone_is_refused(found: Any, says: str) -> None:
    with pytest.raises(FedEPDError, match=says) as refused:
        Experiment.make("fedavg", backbone=found)
    assert len(str(refused.value)) < 400
    assert str(refused.value).isprintable()


def test_hash_of_a_preset_is_the_hash_of_its_values() -> None:
    printed = Experiment.make("fedepd", "printed")
    spelled = Experiment.make("fedepd", **METHODS["fedepd"].presets["printed"])
    assert (
        printed.config_hash("data")
        == spelled.config_hash("data")
        != Experiment.make("fedepd").config_hash("data")
    )


def test_hash_is_the_same_in_another_process() -> None:
    code = (
        "from fedepd.runs.experiment import Experiment; "
        f"print(Experiment.make('fedepd', **{SAMPLE!r}).config_hash('data'))"
    )
    there = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": "7"}
    )
    assert there.stdout.strip() == Experiment.make("fedepd", **SAMPLE).config_hash("data")


def test_a_setting_wins_over_its_preset() -> None:
    made = Experiment.make("fedepd", "printed", absent="zero")
    assert isinstance(made.method, FedEPD)
    assert (made.method.sign, made.method.absent) == ("plus", "zero")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"method": "fedpdd"}, "unknown method 'fedpdd'; did you mean 'fedepd'?"),
        ({"preset": "print"}, "unknown preset of fedepd 'print'; did you mean 'printed'?"),
        ({"gama": 0.5}, "unknown setting 'gama'; did you mean 'gamma'?"),
        ({"method": "fedavg", "gamma": 0.5}, "unknown setting 'gamma'"),
        ({"split": "flor"}, "unknown value of split 'flor'; did you mean 'floor'?"),
    ],
)
def test_unknown_names_come_with_a_guess(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(UnknownName) as caught:
        Experiment.make(**arguments)
    assert str(caught.value).startswith(says)


def test_the_sentence_names_what_moves_the_numbers() -> None:
    settings: dict[str, Any] = {
        "clients": 4,
        "partition": "openfgl",
        "rounds": 7,
        "lr": 0.5,
        "participation": 0.5,
        "select": "last",
    }
    said = Experiment.make("fedavg", **settings, features="row_normalised").sentence()
    for part in (
        "4 clients (openfgl)",
        "60/20/20",
        "7 rounds",
        "lr 0.5",
        "50 % participation",
        "last round",
        "row normalised",
    ):
        assert part in said


# Settings that were removed, and settings that change nothing

RETIRED: dict[str, Any] = {"interleave": False, "infer_on": "purified", "rehearsal_weight": 1.0}


def test_the_identity_still_holds_what_was_removed() -> None:
    """23 fields went into the hash before the removal, and these 23 entries still do.

    Two settings came later. ``holders`` is left out at its default, which is what was done before.
    ``common_counts`` is not: its default does something else than what was done before.
    """
    made = Experiment.make("fedepd")
    assert {name: made.resolved()["method"][name] for name in RETIRED} == RETIRED
    assert len(made.resolved()["method"]) == 2 + 23 + 1 + 1
    assert made.config_hash("data") == "834e30f0d7eb"


@pytest.mark.parametrize("name", RETIRED)
def test_a_removed_setting_is_refused_by_name(name: str) -> None:
    for value in (RETIRED[name], "anything"):
        with pytest.raises(BadConfig, match=f"{name}.* was removed before 0.1.0"):
            Experiment.make("fedepd", **{name: value})


@pytest.mark.parametrize(("name", "value"), [("sign", "post_hoc"), ("absent", "floor1")])
def test_a_removed_value_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(BadConfig, match=f"{name} is '{value}', which was removed before 0.1.0; .*: "):
        Experiment.make("fedepd", **{name: value})


def test_a_file_may_hold_a_removed_setting_at_the_value_that_is_left() -> None:
    """Also as the text of a command line, which is how the task of a federation keeps it."""
    plain = Experiment.make("fedepd")
    texts = {"interleave": "false", "infer_on": "purified", "rehearsal_weight": "1"}
    assert Experiment.recorded("fedepd", "default", RETIRED) == plain
    assert Experiment.recorded("fedepd", "default", texts) == plain


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("interleave", True), ("interleave", [1]), ("infer_on", "original"), ("rehearsal_weight", 0.5),
        ("rehearsal_weight", "x"),
    ],
)  # fmt: skip
def test_a_file_with_another_value_of_a_removed_setting_is_refused(name: str, value: Any) -> None:
    with pytest.raises(BadConfig, match=f"^{name} is .* only {name} = .* is left; run it anew"):
        Experiment.recorded("fedepd", "default", {name: value})


def test_a_model_that_only_predicts_may_have_been_trained_otherwise() -> None:
    """What moved its predictions (the graph they are made on) is refused all the same."""
    trained = {"interleave": True, "rehearsal_weight": 0.5, "absent": "floor1", "mu": 0.5}
    assert Experiment.recorded("fedepd", "default", trained, trained=True) == Experiment.make(
        "fedepd", mu=0.5
    )
    for other in ({"infer_on": "original"}, {"sign": "post_hoc"}):
        with pytest.raises(BadConfig, match="was removed"):
            Experiment.recorded("fedepd", "default", other, trained=True)


@pytest.mark.parametrize(
    ("preset", "settings", "says"),
    [
        ("default", {"gamma": 0.3},
         "gamma is 0.3, but with consensus_by = rehearsal it changes nothing; "
         "leave gamma out, or change consensus_by"),
        ("default", {"teleport": 0.3}, "teleport is 0.3, but with rho = 1.0 it changes nothing"),
        ("printed", {"rehearsal_prior": 1}, "rehearsal_prior is 1.0, but with consensus_by = injection"),
        ("printed", {"consensus": False, "gamma": 0.3}, "gamma is 0.3, but with consensus = false"),
        ("default", {"tolerate": 2}, "tolerate is 2, but with robust = off"),
        ("default", {"tolerate": 2, "robust": "clip"}, "tolerate is 2, but with robust = clip"),
        ("default", {"attackers": 3}, "attackers is 3, but with attack = none"),
        ("default", {"dirichlet_alpha": 0.1}, "dirichlet_alpha is 0.1, but with partition = auto"),
        ("default", {"delta": 5, "partition": "balanced"}, "delta is 5, but with partition = balanced"),
        ("default", {"resolution": 3, "partition": "owner"}, "resolution is 3.0, but with partition = owner"),
        ("default", {"shuffle_nodes": True, "partition": "dirichlet"},
         "shuffle_nodes is true, but with partition = dirichlet"),
    ],
)  # fmt: skip
def test_a_setting_that_changes_nothing_is_refused(preset: str, settings: dict[str, Any], says: str) -> None:
    with pytest.raises(BadConfig) as caught:
        Experiment.make("fedepd", preset, **settings)
    assert str(caught.value).startswith(says)
    Experiment.recorded("fedepd", preset, settings)  # a run folder of an earlier version may hold it


def test_what_a_preset_brings_is_never_refused() -> None:
    """The ablations keep the values of what they take away, and so does a value that is spelled out."""
    for preset in METHODS["fedepd"].presets:
        Experiment.make("fedepd", preset, purify=False)
        Experiment.make("fedepd", preset, recalibrate=False)
        if preset != "without_recalibration":  # there is no consensus in it to take away
            Experiment.make("fedepd", preset, consensus=False)
    Experiment.make("fedepd", "printed", consensus=False, gamma=0.5, rho=0.1)
    Experiment.make("fedepd", attackers=2, tolerate=1, dirichlet_alpha=0.5)
    Experiment.make("fedepd", robust="trimmed", tolerate=2, attack="size", attackers=3)
    Experiment.make("fedepd", partition="dirichlet", dirichlet_alpha=0.1)


@pytest.mark.parametrize(
    ("settings", "before"),
    [
        ({}, "bf3b5a0409a5"),
        ({"guard": True}, "e95bd2cc6052"),
        ({"secure": True}, "80e5f01e0f9b"),
        ({"guard": True, "secure": True, "min_count": 7}, "e62883dba34b"),
    ],
)
def test_runs_from_before_there_was_noise_keep_their_identity(settings: dict[str, Any], before: str) -> None:
    """The hashes were written down before the settings of noise were added."""
    assert Experiment.make("fedavg", **settings).config_hash("data") == before


def test_noise_and_each_of_its_settings_is_another_run() -> None:
    runs: list[dict[str, Any]] = [{}, {"dp_epsilon": 8}, {"dp_epsilon": 4}]
    runs += [{"dp_epsilon": 8, "dp_delta": 1e-6}, {"dp_epsilon": 8, "dp_clip": 0.25}]
    made = [Experiment.make("fedavg", secure=True, **each) for each in runs]
    assert len({each.config_hash("data") for each in made}) == len(runs)
    assert "epsilon 4 at delta 1e-05" in made[2].sentence()
    assert "epsilon" not in made[0].sentence()


def test_corrupted_training_data_are_part_of_a_runs_identity_by_what_they_are() -> None:
    plain = Experiment.make("fedavg").config_hash("data")
    assert Experiment.make("fedavg", corrupt="none").config_hash("data") == plain
    assert Experiment.make("fedavg", corrupt="edges=0").config_hash("data") == plain
    one = Experiment.make("fedavg", corrupt="labels=0.10,edges=0.2")
    again = Experiment.make("fedavg", corrupt="edges=.2,labels=.1")
    assert one.config_hash("data") == again.config_hash("data")
    assert one.config_hash("data") != plain
    assert "training data corrupted (edges=0.2,labels=0.1), scores of clean graphs" in one.sentence()
    assert Experiment.recorded("fedavg", "default", one.resolved()["protocol"]) == one


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"corrupt": "labels=0.1", "pruned": "always"}, "both corrupt and pruned = always are given"),
        ({"corrupt": "edges=0.1", "edges": False}, "corrupt names edges, but the run uses none"),
        ({"corrupt": "edges-missing=0.1", "edges": False}, "corrupt names edges, but the run uses none"),
        ({"corrupt": 3}, "corrupt is '3'; give a text"),
    ],
)
def test_corruption_beside_settings_that_leave_it_no_meaning(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadConfig, match=sentence):
        Experiment.make("fedavg", **settings)


def test_clean_data_pass_and_corrupted_ones_are_refused_where_they_have_no_place() -> None:
    Experiment.make("fedavg").check_clean("never said")
    with pytest.raises(BadConfig, match=r"corrupt is 'labels=0\.1', but sites are honest; leave corrupt out"):
        Experiment.make("fedavg", corrupt="labels=0.1").check_clean("sites are honest")
