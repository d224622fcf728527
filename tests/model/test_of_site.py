"""What a site writes from its own graph and the tensors it was sent, and how columns were scaled."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fedepd.datasets.tables import FeatureRule, FeatureSchema
from fedepd.errors import BadConfig, BadData
from fedepd.longtail import Tiers
from fedepd.methods.fedavg import FedAvg
from fedepd.methods.steps import class_counts
from fedepd.model.model import load_model
from fedepd.model.of_site import SiteModel, export_of_site, scaled_schema
from fedepd.runs.experiment import Experiment
from fedepd.types import TaskInfo
from toy import CLASSES, FEATURES, toy_clients

SCHEMA = FeatureSchema(
    (FeatureRule("kind", categories=("a", "b")), FeatureRule("amount"), FeatureRule("age"))
).to_json()


def site(**settings: Any) -> SiteModel:
    """The first of three sites, with the weights that every run begins with."""
    experiment = Experiment.make("fedavg", "default", hidden=4, rounds=3, clients=3, **settings)
    info, data = TaskInfo(FEATURES, CLASSES, 3), toy_clients(3)[0]
    tensors = experiment.model.initial(info, 0)
    return SiteModel(
        run="r",
        experiment=experiment,
        info=info,
        sites=("a", "b", "c"),
        data=data,
        sites_sha256="0" * 64,
        kind="global",
        tensors=tensors,
        rounds={"global": 2, "personal": 3},
        tiers=Tiers((0,), (1,), (2,)),
        opened=None,
        label_names=(),
        schema="",
    )


def test_the_card_of_a_site(tmp_path: Path) -> None:
    export_of_site(site(), tmp_path / "model")
    card = (tmp_path / "model" / "README.md").read_text()
    assert "# FedAvg on federation a+b+c, model of a" in card
    assert "those of round 2 of 3, which was selected on validation nodes" in card
    assert "without differential privacy" in card
    assert "The data are at the sites a, b, c." in card
    assert load_model(tmp_path / "model").label_names == ("0", "1", "2")


def test_the_card_of_a_site_says_what_noise_there_was(tmp_path: Path) -> None:
    """Noise that spends the whole epsilon over the rounds of the run."""
    export_of_site(site(secure=True, dp_epsilon=8.0, select="last"), tmp_path / "model")
    card = (tmp_path / "model" / "README.md").read_text()
    assert "from 3 sums of updates with noise: epsilon 8.00 at delta 1e-05" in card
    assert "the last; it was not scored" in card


def test_a_model_that_needs_the_sites_labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = FedAvg.predict
    monkeypatch.setattr(FedAvg, "predict", lambda *a: plain(*a) - class_counts(a[1].data))
    with pytest.raises(BadConfig, match="without its training labels this site gets other predictions"):
        export_of_site(site(), tmp_path / "model")
    assert not (tmp_path / "model").exists()


@pytest.mark.hostile
@pytest.mark.parametrize(
    ("tensors", "says"),
    [
        ({}, "fewer weights"),
        ({"encoder.weight": torch.zeros(3, 3)}, "another shape"),
        ({"encoder.weight": torch.full((FEATURES, 4), float("nan"))}, "not finite"),
    ],
)
def test_tensors_that_do_not_fit(tensors: dict[str, Any], says: str, tmp_path: Path) -> None:
    given = site()
    changed = replace(given, tensors={**given.tensors, **tensors} if tensors else {})
    with pytest.raises(BadData, match=f"the saved model of run 'r': .*{says}"):
        export_of_site(changed, tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_the_federations_means_come_into_the_schema() -> None:
    """The categories of the first column are features 0 and 1, so the numbers are features 2 and 3."""
    columns = json.loads(scaled_schema(SCHEMA, {2: (10.0, 2.0)}))
    assert FeatureSchema.from_json(json.dumps(columns)).rules[1] == FeatureRule("amount", mean=10.0, std=2.0)
    assert FeatureSchema.from_json(json.dumps(columns)).rules[2] == FeatureRule("age")
    assert scaled_schema(SCHEMA, {}) == SCHEMA
    for wrong in (0, 1, 4):
        with pytest.raises(BadConfig, match=f"column {wrong} was scaled by the federation"):
            scaled_schema(SCHEMA, {wrong: (0.0, 1.0)})
