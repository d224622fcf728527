"""What a site has at home after a run, and all that can be wrong with it. Each refusal is one sentence."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("nvflare", reason="needs the extra 'federation'")

from deploy.office import Office
from deploy.test_sums import kits, losing, make_task, permissive
from fedepd.cli import main
from fedepd.clients.client_file import write_client_file
from fedepd.deploy.rehearse import rehearse
from fedepd.deploy.state import read_final
from fedepd.deploy.taken import Taken, runs_in, take
from fedepd.deploy.wire import SHARES
from fedepd.errors import BadConfig, BadData, FedEPDError, UnknownName
from fedepd.model.model import load_model
from fedepd.rounds.evaluate import confusions
from fedepd.rounds.final import CLASS_TIERS, SELECTED
from fedepd.rounds.gains import Gain
from fedepd.rounds.guard import HOME, OPEN
from fedepd.runs.checkpoint import load, write
from fedepd.runs.folder import weights_sha256
from fedepd.runs.predict import logits_at
from toy import toy_clients

__all__ = ["kits"]


@pytest.fixture(scope="module")
def over(five_kits: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The kits of three sites after a run of FedAvg under the guard. Do not change them.

    They train on [4, 5, 3], [8, 2, 5] and [5, 9, 4] nodes of the three classes, so the last one is closed: it
    has 12."""
    from deploy.office import furnish

    folder = tmp_path_factory.mktemp("over") / "fed"
    for site in "abc":
        shutil.copytree(five_kits / site, folder / site)
        (folder / site / "local" / "limits.toml").write_text("min_count = 1\nmin_holders = 1\n")
    furnish(folder, ["a", "b", "c"])
    Office(folder, make_task("fedavg", sites=3, min_count=13)).run()
    return folder


@pytest.fixture
def kit(over: Path, tmp_path: Path) -> Path:
    shutil.copytree(over / "a", tmp_path / "a")
    shutil.copyfile(over / "a.npz", tmp_path / "a.npz")
    (tmp_path / "a" / "local" / "fedepd.json").write_text(json.dumps({"data": str(tmp_path / "a.npz")}))
    return tmp_path / "a"


def test_the_site_has_what_the_coordinator_selected(over: Path) -> None:
    """The tensors of the selected round, as the rehearsal of the same files finds them."""
    task = make_task("fedavg", sites=3, min_count=13)
    best = rehearse(task, [over / f"{site}.npz" for site in "abc"]).progress
    for site in "abc":
        taken = take(over / site)
        sent = {name: value for name, value in taken.message.items() if name != OPEN}
        assert weights_sha256(sent) == weights_sha256(best.best["global"].tensors)
        assert taken.rounds == {kind: best.best[kind].round for kind in ("global", "personal")}
        assert taken.opened == list(best.opened or ())
        assert sorted(taken.tiers.head) == sorted(best.tiers.head)
        assert sorted(taken.tiers.tail) == sorted(best.tiers.tail)


def test_closed_classes_have_the_sites_own_columns(over: Path) -> None:
    taken = take(over / "a")
    assert taken.opened is not None
    closed = [c for c in range(taken.task.num_classes) if c not in taken.opened]
    held = set(taken.data.graph.y[taken.data.train_mask].tolist())
    assert set(closed) & held
    tensors = taken.model("global")
    for c in range(taken.task.num_classes):
        same = torch.equal(tensors["classifier.weight"][:, c], taken.message["classifier.weight"][:, c])
        assert same == (c in taken.opened)
    assert not any(name.startswith(HOME) for name in tensors)


def rewritten(kit: Path, change: Callable[[dict[str, Any], dict[str, Any]], None]) -> None:
    """A saved model with a right checksum, but other content."""
    path = kit / "state" / "r" / "final"
    tensors, about = load(path, None)
    change(tensors, about)
    write(path, tensors, about)


def other_run(tensors: dict[str, Any], about: dict[str, Any]) -> None:
    about["config_hash"] = "0" * 12


def other_task(tensors: dict[str, Any], about: dict[str, Any]) -> None:
    about["task"] = json.dumps({**json.loads(about["task"]), "run": "x"})


def no_task(tensors: dict[str, Any], about: dict[str, Any]) -> None:
    del about["task"]


def bad_task(tensors: dict[str, Any], about: dict[str, Any]) -> None:
    about["task"] = "{}"


def no_tiers(tensors: dict[str, Any], about: dict[str, Any]) -> None:
    del tensors[f"model/{CLASS_TIERS}"]


def bad_tiers(tensors: dict[str, Any], about: dict[str, Any]) -> None:
    tensors[f"model/{CLASS_TIERS}"] += 7


def bad_rounds(tensors: dict[str, Any], about: dict[str, Any]) -> None:
    tensors[f"model/{SELECTED}"] = torch.zeros(5)


def late_rounds(tensors: dict[str, Any], about: dict[str, Any]) -> None:
    tensors[f"model/{SELECTED}"] = torch.tensor([99, 99])


@pytest.mark.hostile
@pytest.mark.parametrize(
    ("change", "says"),
    [
        (other_run, "belongs to another run"),
        (other_task, "belongs to another run"),
        (no_task, "has no 'task'"),
        (bad_task, "names settings that cannot be used"),
        (no_tiers, "does not hold 'final.tiers'"),
        (bad_tiers, "names a tier that is none"),
        (bad_rounds, "does not hold 'final.rounds'"),
        (late_rounds, "names a round that is none"),
    ],
)
def test_a_saved_model_that_somebody_else_wrote(
    kit: Path, change: Callable[[dict[str, Any], dict[str, Any]], None], says: str
) -> None:
    rewritten(kit, change)
    with pytest.raises(BadData, match=says):
        take(kit)


@pytest.mark.hostile
@pytest.mark.parametrize("at", [0, 40, -1])
def test_a_saved_model_that_was_tampered_with(kit: Path, at: int) -> None:
    path = kit / "state" / "r" / "final"
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(BadData, match="its checksum differs"):
        take(kit)


@pytest.mark.hostile
def test_random_bytes_are_refused_in_one_sentence(kit: Path) -> None:
    rng, path = np.random.default_rng(0), kit / "state" / "r" / "final"
    whole = path.read_bytes()
    for _ in range(30):
        cut = int(rng.integers(len(whole)))
        path.write_bytes(whole[:cut] + rng.bytes(int(rng.integers(100))))
        with pytest.raises(FedEPDError) as found:
            take(kit)
        assert "\n" not in str(found.value)


def test_before_the_end_and_after_a_failed_run(kits: Path) -> None:
    """The run breaks off after its second round: the site has a state and no model."""
    permissive(kits)
    task = make_task("fedavg", sites=3)
    lost = [(site, SHARES, time) for site in "abc" for time in (5, 6)]  # sizes, steps 1 and 2, evaluation 2
    with pytest.raises(FedEPDError):
        Office(kits, task, losing(*lost)).run()
    assert runs_in(kits / "a") == ["r"]
    with pytest.raises(BadConfig, match=r"run 'r' has not given this site a model \(its last round here is"):
        take(kits / "a")


def test_no_run_and_several_runs(kit: Path) -> None:
    shutil.copytree(kit / "state" / "r", kit / "state" / "s")
    with pytest.raises(BadConfig, match=r"took part in several runs \(r, s\); give --run NAME"):
        take(kit)
    assert take(kit, "r").task.run == "r"
    with pytest.raises(BadData, match="belongs to another run"):
        take(kit, "s")
    with pytest.raises(UnknownName, match="unknown run 't'"):
        take(kit, "t")
    with pytest.raises(UnknownName, match="unknown run"):
        take(kit, "../../etc")
    shutil.rmtree(kit / "state")
    with pytest.raises(BadConfig, match="took part in no run yet"):
        take(kit)


def test_data_that_changed_since_the_run(kit: Path) -> None:
    """Other features are enough: the edges and labels are the same."""
    data = toy_clients(3)[0]
    data.graph.x[0, 0] += 1
    write_client_file(data, kit.parent / "a.npz")
    with pytest.raises(BadData, match="has changed since run 'r'"):
        take(kit)
    (kit.parent / "a.npz").unlink()
    with pytest.raises(BadData, match=r"cannot read '.*a\.npz'"):
        take(kit)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "has no local/fedepd.json"),
        ("[]", "is a list"),
        ('{"data": 3}', "'data' is 3"),
        ('{"data": "x.npz", "allow": "all"}', "'allow' is the text"),
    ],
)
def test_where_the_data_are_is_not_known(kit: Path, content: str | None, says: str) -> None:
    path = kit / "local" / "fedepd.json"
    path.unlink() if content is None else path.write_text(content)
    with pytest.raises(FedEPDError, match=says):
        take(kit)


def test_a_kit_of_another_kind(tmp_path: Path) -> None:
    with pytest.raises(BadData, match="is not a kit"):
        take(tmp_path)


def test_a_site_that_was_away_has_no_personal_model(kit: Path) -> None:
    def gone(tensors: dict[str, Any], about: dict[str, Any]) -> None:
        about["personal"] = False

    rewritten(kit, gone)
    with pytest.raises(BadConfig, match="away in the round that was selected"):
        take(kit).model("personal")


def test_a_method_without_a_model_for_all(kits: Path) -> None:
    permissive(kits)
    Office(kits, make_task("fedproto", sites=3)).run()
    taken: Taken = take(kits / "b")
    with pytest.raises(BadConfig, match="FedProto has no model for all sites; give --personal"):
        taken.model("global")
    tensors = taken.model("personal")
    assert "encoder.weight" in tensors
    own = read_final(kits / "b" / "state" / "r").personal
    assert own is not None
    assert torch.equal(own["encoder.weight"], tensors["encoder.weight"])
    assert taken.data.client_id == 1
    assert main(["federation", "model", str(kits / "b"), "-o", str(kits / "m")]) == 2
    assert not (kits / "m").exists()


def test_the_adapted_model(kits: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its predictions are those of the site's own: the selected model's and the adapted one's, mixed.

    Sites of twenty nodes can be sure of nothing, so any gain is enough here.
    """
    monkeypatch.setattr(Gain, "sure", property(lambda gain: gain.value > 0))
    permissive(kits)
    task = make_task(sites=3, adapt=True)
    ledger = Office(kits, task).run()
    assert ledger.progress.adapted is not None
    assert ledger.progress.adapted.about["used"]
    total = torch.zeros(3, 3, dtype=torch.int64)
    for site in "abc":
        taken = take(kits / site)
        logits = logits_at(task.experiment(), task.info(), taken.model("adapted"), taken.data.hidden())
        total += confusions(logits, taken.data)["val"]
        assert main(["federation", "model", str(kits / site), "-o", str(kits / f"m{site}"), "--adapted"]) == 0
        assert load_model(kits / f"m{site}").kind == "adapted"
    # What the sites sent together leaves out what the guard hides, here nothing.
    assert total.tolist() == ledger.progress.adapted.confusions["adapted_val"][0].tolist()
    (kits / "a" / "state" / "r" / "adapted").unlink()
    with pytest.raises(BadConfig, match="this site has no adapted model of run 'r'"):
        take(kits / "a").model("adapted")
