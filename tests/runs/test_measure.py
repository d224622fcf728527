"""A run over files whose columns are yet to be scaled: simulated, and driven as a federation's."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedepd
from fedepd.cli import main
from fedepd.clients.client_file import Unscaled, write_client_file
from fedepd.clients.clients_dir import FILE, read_clients, read_files
from fedepd.datasets.tables import FeatureRule, FeatureSchema
from fedepd.errors import BadConfig
from fedepd.methods import METHODS
from fedepd.rounds.guard import NO_PRIVACY
from fedepd.rounds.in_process import InProcess
from fedepd.rounds.participant import Participant
from fedepd.rounds.question import Setting
from fedepd.rounds.questions import STATISTICS
from fedepd.rounds.statistics import SCALING, in_words
from fedepd.runs.drive import Course, begin, drive, notices
from fedepd.runs.experiment import Experiment
from fedepd.runs.measure import measure
from fedepd.runs.simulation import build
from toy import FEATURES, make_server, toy_clients

SCALED = (1, 3)
SCHEMA = FeatureSchema(
    (
        FeatureRule("kind", categories=("x",)),
        *(FeatureRule(f"f{k}") for k in range(1, FEATURES)),
    )
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three clients with two raw columns each, around different means."""
    for client in toy_clients(3):
        raw = 40 + 10 * client.client_id + 7 * client.graph.x[:, list(SCALED)].numpy().astype(float)
        x = client.graph.x.clone()
        x[:, 0] = (torch.arange(len(x)) % 3 == 0).float()
        data = replace(client, graph=replace(client.graph, x=x, schema=SCHEMA.to_json()))
        path = tmp_path / "clients" / f"site{client.client_id}" / FILE
        path.parent.mkdir(parents=True)
        write_client_file(data, path, Unscaled(SCALED, raw))
    return tmp_path / "clients"


def raw_rows(folder: Path) -> Any:
    return np.concatenate([file.unscaled.values for file in read_files(folder) if file.unscaled])


def test_a_simulated_run_scales_by_all_rows_and_says_so(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    arguments = ["run", "fedavg", "--clients-dir", str(folder), "--rounds", "2", "--hidden", "4", "--quiet"]
    assert main([*arguments, "--out", str(out)]) == 0
    found = json.loads((out / "summary.json").read_text())["statistics"]
    rows = raw_rows(folder)
    assert [each["mean"] for each in found["columns"]] == pytest.approx(rows.mean(0).tolist(), rel=1e-12)
    assert [each["deviation"] for each in found["columns"]] == pytest.approx(rows.std(0).tolist(), rel=1e-12)
    assert in_words(found)[0].startswith("f1: mean ")
    assert in_words(found)[2] == "kind=x: 25 rows"  # 7 of 20, 8 of 24 and 10 of 28
    again = fedepd.run(read_clients(folder), "fedavg", rounds=2, hidden=4)
    assert again.summary["weights_sha256"] == json.loads((out / "summary.json").read_text())["weights_sha256"]


def test_an_exported_model_takes_raw_tables(folder: Path) -> None:
    """The scaling is in the schema, by which new tables become features."""
    made = build(Experiment.make("fedavg", "default", rounds=1, hidden=4), read_files(folder))
    rules = FeatureSchema.from_json(made.graph.schema).rules
    rows = raw_rows(folder)
    assert (rules[1].mean, rules[1].std) == pytest.approx((rows[:, 0].mean(), rows[:, 0].std()), rel=1e-12)
    assert (rules[2].mean, rules[2].std) == (0.0, 1.0)
    assert (rules[3].mean, rules[3].std) == pytest.approx((rows[:, 1].mean(), rows[:, 1].std()), rel=1e-12)


def test_noise_does_not_cover_statistics(folder: Path) -> None:
    noisy = Experiment.make("fedavg", "default", secure=True, dp_epsilon=8.0, select="last")
    with pytest.raises(BadConfig, match="are not in its budget"):
        build(noisy, read_files(folder))


def test_a_run_asks_once_and_tells_everybody(folder: Path) -> None:
    """The same numbers as in the simulation, by the question of a federation."""
    experiment = Experiment.make("fedavg", "default", rounds=2, hidden=4)
    clients = [file.client(k, experiment.split, 0) for k, file in enumerate(read_files(folder))]
    server = make_server(clients, experiment.model, experiment.training, 0, 2)
    participants = [
        Participant(
            experiment.method,
            c,
            server.info,
            experiment.model,
            experiment.training,
            0,
            2,
            counted=(0,),
        )
        for c in clients
    ]
    course = Course(experiment, server, [0, 1, 2], InProcess(participants))
    made = build(experiment, read_files(folder))
    progress = begin(experiment, server, made.start().tiers)
    setting = Setting(METHODS["fedavg"](), server, NO_PRIVACY, SCALED, (0,))
    assert notices(progress) == {}
    assert measure(course, setting, progress, 100)
    assert not measure(course, setting, progress, 100)
    assert progress.answers[STATISTICS]["bytes_up"] == 3 * 8 * (2 + 2 * 7 + 2 * 12 + 1)
    scaling = notices(progress)[SCALING]
    drive(course, progress, lambda each: progress.add(each, dict))
    assert made.statistics is not None
    assert scaling[0].tolist() == [each["mean"] for each in made.statistics["columns"]]
    simulated = fedepd.run(read_clients(folder), "fedavg", rounds=2, hidden=4)
    from fedepd.runs.folder import weights_sha256

    assert weights_sha256(progress.tensors) == simulated.summary["weights_sha256"]
