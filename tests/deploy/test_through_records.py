"""Every method over the records and the serialiser of a deployed run, in one process.

The digest is the simulation's. Between server and client stand exactly the parts that stand there in a
federation: record, NVFlare's FOBS bytes, record, checks, gate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import Tensor

pytest.importorskip("nvflare", reason="needs the extra 'federation'")

from nvflare.apis.shareable import Shareable
from nvflare.apis.utils.decomposers import flare_decomposers
from nvflare.app_common.decomposers import common_decomposers
from nvflare.fuel.utils import fobs

from fedepd.clients.client_file import write_client_file
from fedepd.deploy import wire
from fedepd.deploy.filters import MinCount
from fedepd.deploy.ledger import Ledger
from fedepd.deploy.rehearse import rehearse
from fedepd.deploy.task import FederationTask, site_data
from fedepd.methods import METHODS
from fedepd.rounds.admission import Refusal
from fedepd.rounds.loop import train
from fedepd.rounds.participant import Participant
from fedepd.types import Reply, Sizes, Tensors
from toy import CLASSES, FEATURES, toy_clients

flare_decomposers.register()
common_decomposers.register()


def cross(record: dict[str, Any]) -> Any:
    """As bytes and back."""
    content = fobs.dumps(Shareable(record))
    assert b"pickle" not in content
    return fobs.loads(content)


class ThroughRecords:
    def __init__(self, participants: list[Participant], num_classes: int) -> None:
        self.participants, self.num_classes = participants, num_classes

    def declared(self, clients: Sequence[int]) -> dict[int, Sizes]:
        records = {k: cross(wire.declaration_record(self.participants[k].sizes)) for k in clients}
        return {
            k: wire.read_declaration(record, self.num_classes, 1000).sizes for k, record in records.items()
        }

    def take_refusals(self) -> list[Refusal]:
        return []

    def step(self, round: int, messages: Mapping[int, Tensors]) -> dict[int, Reply]:
        out = {}
        for client, message in messages.items():
            asked, tensors = wire.read_message(cross(wire.message_record(round, message)))
            out[client] = wire.read_reply(
                cross(wire.reply_record(self.participants[client].step(asked, tensors))), round
            )
        return out

    def evaluate(self, round: int, messages: Mapping[int, Tensors]) -> dict[int, dict[str, Tensor]]:
        out = {}
        for client, message in messages.items():
            asked, tensors = wire.read_message(cross(wire.message_record(round, message)))
            participant = self.participants[client]
            record = cross(wire.confusions_record(asked, participant.evaluate(asked, tensors)))
            out[client] = wire.read_confusions(record, round, self.num_classes, participant.method.has_global)
        return out


DEPLOYED: list[tuple[str, dict[str, Any]]] = [
    (name, {}) for name, cls in METHODS.items() if not cls.merges_clients
]
DEPLOYED += [("fedepd", {"backbone": "gat"}), ("fedepd", {"backbone": "h2gcn"}), ("fedepd", {"layers": 3})]
DEPLOYED += [("fedproto", {"widths": "2-4-6"}), ("fedtgp", {"widths": "2-4-6"})]


@pytest.mark.parametrize(("method", "settings"), DEPLOYED, ids=str)
def test_every_method_reaches_the_digest_of_the_simulation(
    tmp_path: Path, method: str, settings: dict[str, Any]
) -> None:
    files = []
    for client in toy_clients():
        files.append(tmp_path / f"{client.client_id}.npz")
        write_client_file(client, files[-1])
    task = FederationTask(
        "r",
        method,
        "default",
        {"rounds": 3, "evaluate_every": 2, "hidden": 4, "secure": False, **settings},
        FEATURES,
        CLASSES,
        ("a", "b", "c"),
    )
    clients = [site_data(task, site, file) for site, file in zip(task.sites, files, strict=True)]
    ledger = Ledger(task)
    exchange = ThroughRecords([task.participant(client) for client in clients], CLASSES)
    ledger.declare(exchange.declared([0, 1, 2]))
    for each in train(
        ledger.experiment.method,
        ledger.server,
        ledger.progress.tensors,
        [0, 1, 2],
        exchange,
        2,
        defence=ledger.experiment.defence,
        privacy=ledger.experiment.privacy,
    ):
        assert not each.refused
        ledger.add(each)
    assert ledger.digest() == rehearse(task, files).digest()


def prototypes() -> Shareable:
    """Counts 12, 9 and 0 nodes; sums of ones."""
    tensors = {
        "w": np.ones(2, np.float32),
        "prototype.sum": np.ones((3, 2), np.float32),
        "prototype.count": np.array([12, 9, 0], dtype=np.float32),
    }
    return Shareable({"round": 1, "num_nodes": 30, "num_train": 21, "scalars": {}, "tensors": tensors})


def test_the_owners_filter_hides_rare_classes_and_nothing_else() -> None:
    tensors = MinCount(10).process(prototypes(), None)["tensors"]
    assert tensors["prototype.count"].tolist() == [12, 0, 0]
    assert tensors["prototype.sum"].tolist() == [[1, 1], [0, 0], [0, 0]]
    assert tensors["w"].tolist() == [1, 1]
    assert tensors["prototype.sum"].dtype == np.float32


def test_the_owners_filter_hides_rare_classes_in_confusions() -> None:
    matrix = np.array([[9, 1, 0], [0, 9, 0], [0, 0, 0]])
    record = Shareable({"round": 1, "confusions": {"global_val": matrix}})
    assert MinCount(10).process(record, None)["confusions"]["global_val"].tolist() == [
        [9, 1, 0],
        [0, 0, 0],
        [0, 0, 0],
    ]


def test_the_owners_filter_hides_rare_classes_in_declared_sizes() -> None:
    counts = {name: np.array([12, 9, 10]) for name in wire.CLASS_SIZES}
    record = Shareable(
        {"num_nodes": 99, "num_train": 31, "class_sizes": counts, "label_names": [], "schema_sha256": ""}
    )
    assert [sizes.tolist() for sizes in MinCount(10).process(record, None)["class_sizes"].values()] == [
        [12, 0, 10]
    ] * 3


UNEQUAL = {"prototype.count": np.ones(3), "prototype.x": np.ones(2)}


@pytest.mark.parametrize(
    "change",
    [
        {"labels": np.ones(3)},
        {"tensors": [1]},
        {"tensors": UNEQUAL},
        {"tensors": {"owned": np.ones(3)}},
        {"tensors": {"gradient.present": np.ones(3)}},
        {"class_sizes": np.ones(3)},
        {"parts": {"masked": np.ones(3)}},
    ],
)
def test_the_owners_filter_fails_closed(change: dict[str, Any]) -> None:
    record = prototypes()
    record.update(change)
    with pytest.raises(wire.Refused):
        MinCount(10).process(record, None)


def test_the_owners_filter_does_not_pass_what_is_masked() -> None:
    record = Shareable(wire.sum_record(wire.Sum("step", 1), {"masked": np.ones(3, np.int64)}))
    with pytest.raises(wire.Refused, match="masked, so that MinCount cannot look"):
        MinCount(10).process(record, None)
