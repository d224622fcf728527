"""The models that a site compares: its own, the federation's, and the federation's adapted to it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("nvflare", reason="needs the extra 'federation'")

from deploy.ended import SITES, ended
from fedepd.deploy.own_models import ADAPTED, ALONE, FEDERATION, compared, kind_of, scored, true_classes
from fedepd.deploy.taken import Taken, take
from fedepd.errors import BadConfig
from fedepd.metrics import confusion_matrix
from fedepd.rounds.evaluate import sizes


@pytest.fixture(scope="module", params=["fedepd", "fedproto", "fedproto 2-4-6"])
def over(request: pytest.FixtureRequest, five_kits: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The last one has clients of different widths."""
    folder = tmp_path_factory.mktemp("ended") / "fed"
    method, _, widths = request.param.partition(" ")
    more = {"widths": widths} if widths else {}
    ledger = ended(five_kits, folder, method, min_count=1, min_holders=1, **more)
    best = ledger.progress.best
    kind = "global" if "global" in best else "personal"
    np.save(folder / "test.npy", best[kind].confusions[f"{kind}_test"].sum(0))
    return folder


def test_the_federations_scores_are_those_that_the_coordinator_has_summed(over: Path) -> None:
    """All classes are open, so nothing was hidden from the sum."""
    total = np.zeros((3, 3), dtype=np.int64)
    for site in SITES:
        taken = take(over / site)
        models = {each.name: each for each in scored(taken, sizes(taken.data))}
        total += confusion_matrix(true_classes(taken), models[FEDERATION].predicted, 3)
    assert np.array_equal(total, np.load(over / "test.npy"))


def test_a_model_for_all_can_be_adapted(over: Path) -> None:
    taken = take(over / "a")
    models = scored(taken, sizes(taken.data))
    names = [each.name for each in models]
    assert names == ([ALONE, FEDERATION, ADAPTED] if kind_of(taken) == "global" else [ALONE, FEDERATION])
    # Four validation nodes are too few to leave the federation's model.
    assert [each.used for each in models] == [True, True, False][: len(models)]
    assert compared(models).name == FEDERATION
    assert compared([*models[:-1], replace(models[-1], used=True, name=ADAPTED)]).name == ADAPTED


def test_the_same_data_give_the_same_models(over: Path) -> None:
    taken = take(over / "b")
    first, again = (scored(taken, sizes(taken.data)) for _ in range(2))
    assert all(np.array_equal(a.predicted, b.predicted) for a, b in zip(first, again, strict=True))


def test_without_test_nodes_nothing_is_scored_and_without_training_nodes_nothing_is_trained(
    over: Path,
) -> None:
    taken = take(over / "a")
    none = torch.zeros_like(taken.data.test_mask)
    blind = replace(taken, data=replace(taken.data, test_mask=none))
    assert scored(blind, sizes(blind.data)) == []
    idle = replace(taken, data=replace(taken.data, train_mask=none))
    assert [each.name for each in scored(idle, sizes(idle.data))] == [FEDERATION]


def test_a_site_that_was_away_has_no_personal_model(over: Path) -> None:
    taken: Taken = take(over / "a")
    away = replace(taken, final=replace(taken.final, personal=None))
    if kind_of(taken) == "global":
        assert kind_of(away) == "global"
    else:
        with pytest.raises(BadConfig, match="away in the round that was selected"):
            kind_of(away)


def test_a_run_that_adapted_its_model_decides_for_the_site(
    five_kits: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """What the run kept is used as it is: here the candidate after 20 steps."""
    folder = tmp_path_factory.mktemp("adapted") / "fed"
    ended(five_kits, folder, "fedavg", min_count=1, min_holders=1)
    taken = take(folder / "a")
    participant = taken.participant("global")
    expected = participant.adapter(taken.message).predicted[2]
    kept = participant.adapter(taken.message).kept(2)
    told = replace(taken, final=replace(taken.final, adapted=kept))
    model = scored(told, sizes(taken.data))[-1]
    assert (model.name, model.used) == (ADAPTED, True)
    assert np.array_equal(model.predicted, expected[taken.data.test_mask].numpy())
