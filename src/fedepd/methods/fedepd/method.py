"""FedEPD: purify the graph, agree on prototypes, recalibrate the classifier alone.

Guo et al., "Towards Federated Long-Tailed Graph Learning: An Energy-Guided Dual Decoupling Approach".
No code was published.

Down: the model, prototype.mean [C, w], prototype.count [C], pruning.votes [2].
Up: the model, prototype.sum [C, w], prototype.count [C]; in round 1 also pruning.votes [2].
Bytes per client: 4 (|Θ| + C·w + C + 2) down. Round 1 sends as many up, later rounds 8 fewer.
w is the width of what the classifier reads. The printed method has the hidden width there, and no votes.
Without consensus or without recalibration there are no prototypes.

The preset `printed` is the paper's text. The default is what a study by validation made of it
(docs/what-we-changed.md).

Eq. 1-5 are in purify.py, the vote on pruning is in vote.py, Eq. 6, 13 and 14 are in structure.py, the margin
of Eq. 15 is in margin.py, Eq. 9 in steps.py, Eq. 10 in sparse.py and Eq. 17 in longtail.py. The other
equations and Algorithms 1-2 are here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, cast, final

import torch
from torch import Tensor

from fedepd.errors import BadConfig
from fedepd.methods.base import Client, Method, Server
from fedepd.methods.fedepd.holders import average_by_holders, by_holders, column_weights
from fedepd.methods.fedepd.idle import idle_settings
from fedepd.methods.fedepd.margin import Margin
from fedepd.methods.fedepd.purify import Score, edges_kept
from fedepd.methods.fedepd.rehearsal import Rehearsal
from fedepd.methods.fedepd.structure import Graphs, Prepared, central_nodes, class_homophily, low_pass_rows
from fedepd.methods.fedepd.vote import counted_votes, for_pruning
from fedepd.methods.steps import (
    average,
    class_counts,
    class_sums,
    cross_entropy,
    fit,
    model_part,
    reply,
    with_prefix,
)
from fedepd.network.backbones import Backbone
from fedepd.network.contract import Inputs
from fedepd.network.kernels import cross_entropy_
from fedepd.network.sparse import Chosen, Sparse
from fedepd.network.training import Gradient
from fedepd.options import ladder, option
from fedepd.types import ClientData, Field, Fields, Reply, TaskInfo, Tensors, same_fields

PAPER: Mapping[str, Any] = {
    "consensus_by": "injection",
    "rho": 0.1,
    "prune": "always",
    "gate": "labelled",
    "margin_in": "calibration",
    "prototype_encoder": "local",
    "common_counts": 0.0,
}
"""What `printed` and `corrected` share: the paper's way, where our default has another."""


@final
@dataclass(frozen=True)
class FedEPD(Method[Graphs]):
    label: ClassVar[str] = "FedEPD"
    weighs_edges: ClassVar[bool] = True
    reads_float16: ClassVar[bool] = True
    works_without_rows: ClassVar[bool] = True
    # No prototype counts: then there is no calibration, and without a vote nothing is pruned.
    # The ablations are those of the default. Table 3 ablates the printed method too, as `--preset printed
    # --no-consensus` does. `corrected` is `printed` with its sign, absent classes and isolated nodes mended.
    # Without recalibration only pruning is left, because margin and prototypes belong to it.
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "default": {},
        "printed": {**PAPER, "mu": 1.0, "sign": "plus", "absent": "eps", "isolated_gate": 0.0},
        "corrected": {**PAPER, "absent": "exclude"},
        "without_purification": {"purify": False},
        "without_consensus": {"consensus": False},
        "without_recalibration": {"recalibrate": False},
    }
    added: ClassVar[frozenset[str]] = frozenset({"holders"})
    retired: ClassVar[Mapping[str, Any]] = {
        "interleave": False,
        "infer_on": "purified",
        "rehearsal_weight": 1.0,
    }
    retired_values: ClassVar[Mapping[str, tuple[str, ...]]] = {"sign": ("post_hoc",), "absent": ("floor1",)}
    retired_in_training: ClassVar[frozenset[str]] = frozenset({"interleave", "rehearsal_weight", "absent"})

    # Choice: the paper never gives mu and gamma of its main table. We take 1 and 0.5, the middle of its heat
    # maps.
    mu: float = option(
        1.0,
        "intensity of the logit adjustment, Eq. 15; 0 switches it off",
        search=ladder(0.5, 1.0, 2.0, below=0.25, above=4.0),
    )
    gamma: float = option(0.5, "intensity of the prototype injection, Eq. 12; in (0, 1)")
    rho: float = option(
        1.0,
        "share of a class's training nodes that its prototype is the mean of, the most central; in (0, 1]",
    )
    # Choice: the paper's 0.1 is one node for nearly every class and client. Such a prototype is noisy, and it
    # is one node's embedding in clear. By validation, rehearsal (below) is better with all training nodes.
    # `printed` keeps 0.1.
    teleport: float = option(0.15, "teleport probability (alpha) of the random walk, Eq. 6; in (0, 1]")
    walk_steps: int = option(10, "steps L of the random walk, Eq. 6")
    calibration_epochs: int = option(3, "classifier steps per round after the base epochs")
    # Choice: Algorithm 2 shows one base step and one calibration step, and the text says 3 local epochs. We
    # take 3 base steps and then 3 calibration steps.
    sign: Literal["minus", "plus"] = option(
        "minus", "how the margin enters a loss: subtracted from the logits, or added as printed"
    )
    # Choice: minus. With the printed plus, the loss is smallest where the logits of rare classes are lower
    # than they should be, so inference finds them less often. Every other method that adjusts logits in the
    # loss subtracts. `printed` keeps the plus.
    margin_in: Literal["both", "calibration"] = option(
        "both", "which losses have the margin: those of both stages, or of the calibration alone as printed"
    )
    # Choice: Eq. 9 trains the encoder by the plain cross-entropy, so it learns rare classes late. By
    # validation the same margin in both stages raises balanced accuracy on email, corafull, roman_empire,
    # actor and amazon_computers. It costs at most 0.7 points on amazon_clothing_20 and coauthor_cs
    # (docs/what-we-changed.md).
    absent: Literal["zero", "exclude", "eps"] = option(
        "zero", "classes without a local training node: margin 0, out of the softmax, or the printed eps"
    )
    # Choice: the printed eps gives an absent class a margin of about 15 mu, and averaging carries it to the
    # clients that own the class. With rehearsal every client knows every class, so an absent one needs no
    # exception. Without rehearsal, leaving absent classes out of the softmax (`corrected`) keeps their
    # boundaries in place.
    consensus_by: Literal["rehearsal", "injection"] = option(
        "rehearsal",
        "what prototypes do: show the classifier all classes, or be mixed into representations (Eq. 11-12)",
    )
    # Choice: the paper injects prototypes into the representations of training nodes. The classifier is then
    # calibrated on rows that hold their own label, and absent classes drift. In rehearsal the calibration
    # loss of each client also has the classifier's cross-entropy on the global prototypes of all classes.
    # They are means of what it reads.
    rehearsal_prior: float = option(
        0.25,
        "how much frequent classes count above rare ones in rehearsal; 0: alike, 1: by their frequency",
    )
    # Choice: of 0, 0.25 and 0.5, by validation. 0.5 gains less on rare classes, and 0 costs accuracy on
    # graphs with little signal.
    elites: Literal["train", "any"] = option(
        "train", "elites among the class's training nodes, or among all nodes"
    )
    # Choice: "all nodes of class c" would read validation and test labels, so it is not offered.
    # "Semantically anchored" asks for training nodes. The best scores among all nodes are often hubs of head
    # classes.
    gate: Literal["labelled", "constant"] = option(
        "constant",
        "factor of the margin: 0.5 for all classes, or the homophily among labelled neighbours, Eq. 13-14",
    )
    # Choice: homophily takes the margin away on heterophilic graphs, where rare classes need it as much. By
    # validation the constant is better there, and elsewhere the difference is within the noise of a seed. 0.5
    # is the paper's own value for missing statistics. `printed` and `corrected` keep the homophily.
    # Choice: the printed gate reads the labels of all neighbours, test nodes among them. It is not offered.
    # Choice: Eq. 13 gives 0 to a node without kept neighbours, so pruning itself would lower the gate. We
    # give it 0.5, the paper's own value for missing statistics. `printed` keeps the 0.
    isolated_gate: float = option(
        0.5, "homophily of a training node without kept neighbours; the printed formula gives 0"
    )
    prune: Literal["by_vote", "always"] = option(
        "by_vote", "prune where the training nodes of all clients get easier to classify by it, or always"
    )
    # Choice: Eq. 5 prunes every client at its own rate, also where the pruned edges were good ones. A client
    # may judge by its training nodes. In round 1 it counts how many of them a leave-one-out ridge classifier
    # gets right on either graph. The server adds the counts up, and from then on all clients prune or none
    # does. So there is one model for one kind of graph. With partial participation the clients of the first
    # round decide for all.
    score: Score = option(
        "fused", "what edges are pruned by: Eq. 4, one of its halves, or at random at the same rate"
    )
    # Choice: "original foundational representations" may mean the original graph, but Algorithm 2 recomputes
    # them on the purified one. Predictions are made on the graph that is trained on.
    prototype_encoder: Literal["received", "local"] = option(
        "received",
        "prototypes from the averaged encoder that a round begins with, "
        "or from the local one that it ends with as printed",
    )
    # Choice: local encoders drift apart, and no encoder puts a class where the mean of theirs does. The
    # averaged encoder is what the classifier meets after the round. By validation it brings +9 points of
    # balanced accuracy on amazon_computers, +3 on amazon_clothing_20, and +1 on coauthor_cs and
    # corafull_proxy. Elsewhere the difference is within the noise of a seed (docs/what-we-changed.md).
    holders: float = option(
        0.0,
        "share of the classifier that is averaged class by class over the clients that hold a class; in "
        "[0, 1]",
        search=ladder(0.0, 0.25, 0.5, above=1.0),
    )
    common_counts: float = option(
        1.0,
        "share of the margin that is from the class counts of all clients instead of the client's own; in "
        "[0, 1]",
        search=ladder(0.0, 0.5, 1.0),
    )
    purify: bool = option(True, "topological purification")
    consensus: bool = option(True, "global prototypes, and what consensus_by does with them")
    recalibrate: bool = option(
        True, "the calibration stage; without it there are no margins and no prototypes"
    )

    def __post_init__(self) -> None:
        if not 0 < self.gamma < 1:
            raise BadConfig(
                f"gamma is {self.gamma}; give a number between 0 and 1, or consensus = false for no injection"
            )
        if not 0 < self.rho <= 1:
            raise BadConfig(f"rho is {self.rho}; the elite share must lie in (0, 1]")
        if not 0 < self.teleport <= 1:
            raise BadConfig(f"teleport is {self.teleport}; it must lie in (0, 1]")
        if self.consensus_by == "rehearsal" and self.elites == "any":
            raise BadConfig(
                "elites is any, but rehearsal needs nodes whose class is known; "
                "give elites = train or consensus_by = injection"
            )
        if not 0 <= self.rehearsal_prior <= 1:
            raise BadConfig(f"rehearsal_prior is {self.rehearsal_prior}; it must lie in [0, 1]")
        if not 0 <= self.holders <= 1:
            raise BadConfig(f"holders is {self.holders}; it is a share of the classifier and lies in [0, 1]")
        if not 0 <= self.common_counts <= 1:
            raise BadConfig(
                f"common_counts is {self.common_counts}; it is a share of the margin and lies in [0, 1]"
            )
        if not 0 <= self.mu < float("inf"):
            raise BadConfig(f"mu is {self.mu}; give a finite number, 0 or more")
        if not 0 <= self.isolated_gate <= 1:
            raise BadConfig(f"isolated_gate is {self.isolated_gate}; a homophily lies in [0, 1]")
        if self.walk_steps < 0 or self.calibration_epochs < 0:
            raise BadConfig("walk_steps and calibration_epochs must be 0 or more")

    @property
    def uses_prototypes(self) -> bool:
        """Prototypes are used in calibration alone, so without calibration none are sent."""
        return self.consensus and self.recalibrate

    @property
    def rehearses(self) -> bool:
        return self.uses_prototypes and self.consensus_by == "rehearsal"

    @property
    def injects(self) -> bool:
        return self.uses_prototypes and self.consensus_by == "injection"

    @property
    def weighs_holders(self) -> bool:
        """Who holds a class is known from the counts of prototypes."""
        return self.uses_prototypes and self.holders > 0

    @property
    def votes(self) -> bool:
        return self.purify and self.prune == "by_vote"

    def idle(self) -> dict[str, str]:
        return idle_settings(self)

    def prunes(self, tensors: Tensors) -> bool:
        """Whether the purified graph is the one to use."""
        return for_pruning(tensors["pruning.votes"]) if self.votes else self.purify

    def prepare(self, data: ClientData, model: Backbone) -> Graphs:
        kept = edges_kept(data.graph, self.score) if self.purify else None
        graphs = Graphs(data, kept, lambda edges: self._derive(data, model, edges))
        graphs.on(self.purify and not self.votes)
        return graphs

    def _derive(self, data: ClientData, model: Backbone, edges: Tensor) -> Prepared:
        counts = class_counts(data)
        wanted = counts if self.uses_prototypes else torch.zeros_like(counts)
        elites, elite_classes = central_nodes(
            data, wanted, self.rho, self.elites, self.teleport, self.walk_steps
        )
        inputs = model.inputs(data, edges)
        return Prepared(
            inputs=inputs,
            elites=elites,
            elite_classes=elite_classes,
            margin=Margin.of(self.mu, self._gate(data, edges), counts, self.absent),
            absent=counts == 0,
            low_pass=self._low_pass(data, model, inputs, edges),
        )

    def _low_pass(
        self, data: ClientData, model: Backbone, inputs: Inputs, edges: Tensor
    ) -> Sparse | Chosen | None:
        """The rows that injection needs. The gcn backbone has them already."""
        if not self.injects:
            return None
        return inputs.train_rows if model.backbone == "gcn" else low_pass_rows(data, edges)

    def _gate(self, data: ClientData, edges: Tensor) -> Tensor:
        """q of Eq. 13-14, float64 [C]."""
        constant = torch.full((data.graph.num_classes,), 0.5, dtype=torch.float64)
        return class_homophily(data, edges, self.isolated_gate) if self.gate == "labelled" else constant

    def client_step(self, client: Client[Graphs], message: Tensors, state: Tensors) -> tuple[Reply, Tensors]:
        """One round; the first also votes on pruning."""
        tensors, loss, state = self._train(self._on_graph(client, message), message, state)
        if self.votes and not bool(message["pruning.votes"].any()):
            tensors = {**tensors, "pruning.votes": client.prepared.votes()}
        return reply(client, tensors, loss=loss), state

    def _on_graph(self, client: Client[Graphs], tensors: Tensors) -> Client[Prepared]:
        """The client on the graph that is trained on."""
        here: Client[Any] = cast(Client[Any], client)
        return replace(here, prepared=client.prepared.on(self.prunes(tensors)))

    def _train(
        self, client: Client[Prepared], message: Tensors, state: Tensors
    ) -> tuple[Tensors, float, Tensors]:
        """Algorithm 2: what is sent, the mean base loss, the new state."""
        received = model_part(message)
        params, state, loss = fit(client, received, state, self._base_loss(client, message))
        frozen = self._representation(client, params)
        if self._calibrates(client, message):
            params, state = self._calibrate(client, params, frozen, message, state)
        tensors = params
        if self.uses_prototypes:
            of = frozen if self.prototype_encoder == "local" else self._representation(client, received)
            tensors = {**params, **self._prototypes(client, of)}
        return tensors, loss, {**state, **params}

    def _base_loss(self, client: Client[Prepared], message: Tensors) -> Gradient:
        """Eq. 9 on the graph that is trained on.

        Where ``margin_in`` says so, its logits are shifted as in Eq. 15.
        """
        shifted = self.margin_in == "both" and self.recalibrate
        return cross_entropy(
            client, client.prepared.inputs, self._shift(client.prepared, message) if shifted else None
        )

    def _calibrates(self, client: Client[Prepared], message: Tensors) -> bool:
        """Whether this round has a calibration stage.

        Choice: calibration begins once there are prototypes (Algorithm 2), which is round 2. Without
        consensus it begins then too, so that both have the same schedule.
        """
        begun = client.round > 1 and (not self.uses_prototypes or bool(message["prototype.count"].any()))
        return self.recalibrate and self.calibration_epochs > 0 and begun

    def _representation(self, client: Client[Prepared], params: Tensors) -> Tensor:
        """What calibration and prototypes start from, on the graph that is trained on. Empty where neither is
        wanted.

        For rehearsal it is what the classifier reads of the training nodes, [t, w]. For injection it is H,
        [n, h].
        Choice: without dropout; the paper does not say.
        """
        if not self.recalibrate:
            return torch.empty(0)
        inputs = client.prepared.inputs
        if self.rehearses:
            return client.model.training_rows(params, inputs)[0]
        with torch.no_grad():
            return client.model.encode(params, inputs)

    def _calibrate(
        self,
        client: Client[Prepared],
        params: Tensors,
        frozen: Tensor,
        message: Tensors,
        state: Tensors,
    ) -> tuple[Tensors, Tensors]:
        """Decoupled calibration: classifier steps on a representation that is computed once. The encoder is
        frozen.

        Choice: this stage has an optimiser of its own without the encoder, so that neither momentum nor
        weight decay moves the encoder. There is no dropout on the frozen representation.
        """
        if not self.rehearses:
            hidden = self._inject(client, frozen, message) if self.injects else frozen
            frozen = client.model.smooth(params, hidden, client.prepared.inputs, True)  # [t, w]
        loss = self._calibration_loss(client, frozen, message)
        names, epochs = sorted(with_prefix(params, "classifier.")), self.calibration_epochs
        params, state, _ = fit(
            client, params, state, loss, trainable=names, epochs=epochs, stage="calibration"
        )
        return params, state

    def _inject(self, client: Client[Prepared], hidden: Tensor, message: Tensors) -> Tensor:
        """Eq. 11-12 on the training nodes whose class has a prototype. All other rows stay as they are."""
        inputs, low_pass = client.prepared.inputs, client.prepared.low_pass
        assert low_pass is not None
        target = message["prototype.mean"][inputs.labels]  # [t, h]
        known = (message["prototype.count"] > 0)[inputs.labels]
        low = low_pass.times(hidden)  # Eq. 11, [t, h]
        high = hidden[inputs.train] - low  # Eq. 11
        injected = (1 - self.gamma) * low + self.gamma * target + high  # Eq. 12
        return hidden.index_copy(0, inputs.train[known], injected[known])

    def _calibration_loss(self, client: Client[Prepared], s: Tensor, message: Tensors) -> Gradient:
        """The classifier's loss on the rows of ``s`` [t, w]; in rehearsal also on the prototype of every
        class.
        """
        labels, size = client.prepared.inputs.labels, s.shape[0]
        shift = self._shift(client.prepared, message)
        rehearsal = Rehearsal.of(message, self.rehearsal_prior) if self.rehearses else None
        if rehearsal is not None:
            s = torch.cat([s, rehearsal.rows])

        def of(params: Tensors) -> tuple[float, Tensors]:
            z = client.model.classify(params, s)
            loss = cross_entropy_(z[:size], labels, shift)  # Eq. 15-16; z becomes its gradient
            if rehearsal is not None and rehearsal.classes.numel():
                loss += cross_entropy_(z[size:], rehearsal.classes, rehearsal.tilt)
            return loss, {"classifier.weight": s.t() @ z, "classifier.bias": z.sum(0)}

        return Gradient(of)

    def _shift(self, prepared: Prepared, message: Tensors) -> Tensor:
        """What is added to the logits in a loss, [C]."""
        margin = prepared.margin.at(self.common_counts, message.get("prototype.count"))
        shift = {"plus": 1, "minus": -1}[self.sign] * margin
        return shift.masked_fill(prepared.absent, float("-inf")) if self.absent == "exclude" else shift

    def _prototypes(self, client: Client[Prepared], representation: Tensor) -> Tensors:
        """The sums and counts of Eq. 7; for rehearsal, of what the classifier reads of these nodes."""
        prepared, num_classes = client.prepared, client.info.num_classes
        places = (
            torch.searchsorted(prepared.inputs.train, prepared.elites) if self.rehearses else prepared.elites
        )
        return {
            "prototype.sum": class_sums(representation[places], prepared.elite_classes, num_classes),  # Eq. 7
            "prototype.count": torch.bincount(prepared.elite_classes, minlength=num_classes).to(
                torch.float32
            ),
        }

    def server_init(self, server: Server, params: Tensors) -> Tensors:
        if self.votes:
            params = {**params, "pruning.votes": torch.zeros(2)}
        if not self.uses_prototypes:
            return params
        empty = torch.zeros(
            server.info.num_classes, server.model.width if self.rehearses else server.model.hidden
        )
        return {**params, "prototype.mean": empty, "prototype.count": torch.zeros(server.info.num_classes)}

    def server_step(self, server: Server, tensors: Tensors, replies: Mapping[int, Reply]) -> Tensors:
        new = self._averaged(server, tensors, replies)
        if self.votes:
            new |= {"pruning.votes": counted_votes(tensors["pruning.votes"], replies)}
        if self.uses_prototypes:
            new |= global_prototypes(tensors, replies)
        return new

    def _averaged(self, server: Server, tensors: Tensors, replies: Mapping[int, Reply]) -> Tensors:
        params = model_part(tensors)
        if not self.weighs_holders:
            return average(server.info, params, replies)
        fields = self.reply_fields(server, tensors)
        return average_by_holders(server.info, fields, params, replies, self.holders)

    def weights(self, info: TaskInfo, fields: Fields, reply: Reply) -> Tensors:
        by_class = {
            name: column_weights(info, field.factors, self.holders, reply)
            for name, field in fields.items()
            if field.factors is not None
        }
        return {**super().weights(info, fields, reply), **by_class}

    def reply_fields(self, server: Server, tensors: Tensors) -> Fields:
        fields = same_fields(model_part(tensors))
        if self.votes and not bool(tensors["pruning.votes"].any()):
            fields["pruning.votes"] = Field((2,), "votes")
        if self.uses_prototypes:
            fields["prototype.sum"] = Field(
                tuple(tensors["prototype.mean"].shape), "sum", of="prototype.count"
            )
            fields["prototype.count"] = Field(tuple(tensors["prototype.count"].shape), "count")
        return by_holders(fields, tensors) if self.weighs_holders else fields

    def predict(self, client: Client[Graphs], tensors: Tensors) -> Tensor:
        return client.model.predict(tensors, client.prepared.on(self.prunes(tensors)).inputs)

    def classifier_reads(
        self, client: Client[Graphs], tensors: Tensors
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        prepared = client.prepared.on(self.prunes(tensors))
        shift = self._shift(prepared, tensors) if self.recalibrate else None
        return *client.model.training_rows(tensors, prepared.inputs), shift

    def adaptation(self, client: Client[Graphs], tensors: Tensors) -> tuple[Tensors, Gradient]:
        """The base loss, with its margin, on the graph that is trained on; with rehearsal if the rounds have
        it.
        """
        base = self._base_loss(self._on_graph(client, tensors), tensors)
        if self.rehearses and bool(tensors["prototype.count"].any()):
            base = Rehearsal.of(tensors, self.rehearsal_prior).beside(base, client.model)
        return model_part(tensors), base

    def training_edges(self, data: ClientData, prepared: Graphs, tensors: Tensors) -> Tensor:
        return prepared.edges(self.prunes(tensors))


def global_prototypes(tensors: Tensors, replies: Mapping[int, Reply]) -> Tensors:
    """Eq. 8. A class that nobody ever had has count 0.

    Choice: a class whose owners are all absent in a round keeps its last prototype.
    """
    mean, count = tensors["prototype.mean"], tensors["prototype.count"]
    sums = torch.zeros(mean.shape, dtype=torch.float64)
    counts = torch.zeros(count.shape, dtype=torch.float64)
    for k in sorted(replies):
        held = replies[k].tensors["prototype.count"].to(torch.float64)
        sums += torch.where(held[:, None] > 0, replies[k].tensors["prototype.sum"], 0.0)  # k in S_c
        counts += held
    fresh = (sums / counts.clamp(min=1)[:, None]).to(torch.float32)  # Eq. 8
    seen = counts > 0
    return {
        "prototype.mean": torch.where(seen[:, None], fresh, mean),
        "prototype.count": torch.where(seen, counts.to(torch.float32), count),
    }
