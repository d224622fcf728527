"""The model that a site takes home from a federation, measured on the site's own nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from fedepd.clients.scaling import scaled_rule
from fedepd.datasets.tables import FeatureSchema
from fedepd.errors import BadConfig
from fedepd.longtail import Tiers
from fedepd.model.held_out import OTHERWISE, needed_only
from fedepd.model.model import Model, check_model
from fedepd.model.of_client import write_own
from fedepd.model.operating import Operating, Rule
from fedepd.report.runs import Run
from fedepd.rounds.evaluate import sizes
from fedepd.runs.experiment import Experiment
from fedepd.runs.folder import Json, check_new_run
from fedepd.runs.record import describe, describe_data, environment
from fedepd.shapes import TIERS
from fedepd.types import ClientData, TaskInfo, Tensors


class SiteRun(Run):
    """A run as one of its sites knows it. There is no run folder."""

    @cached_property
    def env(self) -> Json:
        return environment()


@dataclass(frozen=True, eq=False)
class SiteModel:
    """What a site has after a run."""

    run: str
    """The name of the run."""
    experiment: Experiment
    info: TaskInfo
    sites: tuple[str, ...]
    data: ClientData
    """The site's own. Its number is the site's place among ``sites``."""
    sites_sha256: str
    kind: str
    """"global", "personal" or "adapted"."""
    tensors: Tensors
    rounds: Mapping[str, int]
    """The selected round of each model."""
    tiers: Tiers
    opened: list[int] | None
    """Under the guard: the classes that are open."""
    label_names: tuple[str, ...]
    schema: str
    """How columns become features, with all means and deviations; empty if the data are no tables."""
    point: tuple[int, tuple[tuple[tuple[int, ...], float], ...]] | None = None
    """What the sites chose together: the largest class, and the classes and the threshold of every rule."""


def export_of_site(site: SiteModel, out: Path) -> Model:
    """Write the model folder of a site.

    Raises:
        BadConfig: ``out`` is there already, or the model needs the site's labels to predict.
        BadData: The tensors do not fit the settings.
    """
    check_new_run(out)
    model = Model(
        experiment=site.experiment,
        info=site.info,
        tensors=site.tensors,
        label_names=site.label_names or tuple(map(str, range(site.info.num_classes))),
        tiers=site.tiers,
        temperatures=dict.fromkeys(TIERS, 1.0),
        schema=FeatureSchema.from_json(site.schema) if site.schema else None,
        client=site.sites[site.data.client_id],
        kind=site.kind,
        edge_weights=site.data.graph.edge_weight is not None,
    )
    check_model(model, f"the saved model of run '{site.run}'", "ask the coordinator to run again")
    here, counts = model.logits_at(site.data.hidden()), sizes(site.data).train
    model = replace(model, tensors=site.experiment.method.without_labels(site.tensors, counts))
    if not torch.equal(model.logits(site.data.graph), here):
        raise BadConfig(f"without its training labels this site {OTHERWISE}")
    model = needed_only(model, site.data.graph)
    together = None
    if site.point is not None:
        usual, rules = site.point
        point = Operating(usual, tuple(Rule(*rule) for rule in rules))
        together = point, site.experiment.protocol.aim
    run = _run_of(site)
    write_own(run, model, site.data, list(site.sites), out, site.opened, together=together)
    return model


def _run_of(site: SiteModel) -> Run:
    e, classes = site.experiment, site.info.num_classes
    dataset = describe_data(
        name=f"federation {'+'.join(site.sites)}",
        nodes=0,  # of all sites together: nobody tells one site
        edges=0,
        features=site.info.num_features,
        class_sizes=[0] * classes,
        sha256=site.sites_sha256,
    )
    if site.data.graph.edge_weight is not None:
        dataset["edge_weights"] = True
    protocol = e.sentence().replace(f"({e.partition.partition})", "(sites)")
    config = describe(e, dataset, protocol, sites=site.sites)
    headline, budget = config["has_global"], e.privacy.budget(e.protocol.rounds)
    summary: dict[str, Any] = {
        **{name: config[name] for name in ("method_label", "protocol", "seed", "rounds", "config_hash")},
        "dataset": dataset["name"],
        "proxy_features": False,
        "headline": "global" if headline else "personal",
        "best_round": site.rounds["global" if headline else "personal"],
        "best_rounds": dict(site.rounds),
        "metrics": {},
        "warnings": [],
        **({} if site.opened is None else {"open_classes": site.opened}),
        **({} if budget is None else {"privacy": dict(budget.spent(e.protocol.rounds))}),
    }
    return SiteRun(Path(site.run), summary, config)


def scaled_schema(schema: str, means: Mapping[int, tuple[float, float]]) -> str:
    """The schema with the means and deviations that a federation found.

    Args:
        schema: As a site has it, where the columns are not scaled yet.
        means: Mean and deviation by the position of the feature.

    Returns:
        The schema for ``FeatureSchema.from_json``.

    Raises:
        BadConfig: A position is not that of a column of numbers.
    """
    rules, left, whole = [], dict(means), FeatureSchema.from_json(schema)
    for at, rule in whole.places:
        if rule.categories is None and at in left:
            rule = scaled_rule(rule, *left.pop(at))
        rules.append(rule)
    if left:
        raise BadConfig(f"column {min(left)} was scaled by the federation, but it holds no numbers here")
    return replace(whole, rules=tuple(rules)).to_json()
