"""GraphFedMig: a discriminator that a cluster of clients shares, and models averaged by mutual information.

Li et al., "GraphFedMIG: Tackling Class Imbalance in Federated Graph Learning via Mutual Information-Guided
Generation", 2025, arXiv 2508.10471.
Official code: github.com/NovaFoxjet/GraphFedMIG at 241897f (no licence; nothing copied).
Down: the model, discriminator.*, judged.mean [C], cluster.size [1].
Up: the model, discriminator.*, judged.mean [C], information [1]; with -1 < threshold <= 1 also feature.mean
[d].
Bytes each way per client: 4 (|Θ| + |D| + C + 1), |D| = 385 C + 33,152; up 4 d more with such a threshold.
Clients train the discriminator, and its parameters are averaged. The official program hands it the logits of
nodes across clients; here they never leave. The mean judgement of a client's training nodes leaves it, and
with a threshold so does its mean raw feature vector.
Ours against the program: the softmax is over classes, not nodes. Only labels of training nodes are read. The
mean judgement is unbiased. The mutual information is of predictions and labels; the program's is always log
C, so its weights are uniform (`official`). Its MI' term and its extra step on client 0 are left out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, final

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fedepd.errors import BadConfig
from fedepd.methods.base import Client, Method, Server
from fedepd.methods.steps import (
    average,
    class_counts,
    class_sums,
    cross_entropy,
    fit,
    model_part,
    of_logits,
    renamed,
    reply,
    weighted_mean,
    with_prefix,
)
from fedepd.network.backbones import Backbone
from fedepd.network.contract import Inputs, convolves_first, glorot
from fedepd.network.convolution import Convolution, side_by_side
from fedepd.network.products import affine
from fedepd.network.sparse import Sparse, factor_of
from fedepd.network.training import Gradient, Loss
from fedepd.options import ladder, option
from fedepd.types import ClientData, Field, Fields, Reply, TaskInfo, Tensors, same_fields

WIDTHS = (256, 128)
"""Hidden layers of the discriminator."""
OF_CLASSES = {
    "discriminator.0.weight": 0,
    f"discriminator.{len(WIDTHS)}.weight": 1,
    f"discriminator.{len(WIDTHS)}.bias": 0,
    "judged.mean": 0,
}
"""What is sent with numbers of each class besides the model. The discriminator reads and writes logits."""


@dataclass(frozen=True, eq=False)
class Prepared:
    inputs: Inputs
    raw: Sparse | Tensor
    """X itself, [n, d]. Where X is dense, ``inputs.features`` is P X."""
    counts: Tensor
    """Training nodes per class, int64 [C]."""


@final
@dataclass(frozen=True)
class GraphFedMig(Method[Prepared]):
    label: ClassVar[str] = "GraphFedMig"
    weighs_edges: ClassVar[bool] = True
    revision: ClassVar[int] = 2  # before, the divergence was not divided by C and its middle had a gradient
    has_global: ClassVar[bool] = False  # one model per cluster, and the authors score each client's own
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "default": {},
        "authors_values": {"mi": "official", "initial": "uniform", "dropout_own": True},
    }

    mi: Literal["histogram", "official"] = option(
        "histogram",
        "a client's weight: mutual information of its predictions and labels, or the program's constant",
    )
    warm_up: int = option(
        20,
        "epochs that each client trains alone at the beginning of round 1",
        search=ladder(0, 20, 40, above=80),
    )
    gan_weight: float = option(
        1e-4,
        "weight of the divergence from the cluster's mean judgement in the local loss; 0 switches it off",
        search=ladder(1e-5, 1e-4, 1e-3, below=0.0, above=1e-2),
    )
    discriminator_steps: int = option(5, "discriminator steps per round", search=ladder(1, 5, 10, above=20))
    noise: float = option(1e-4, "standard deviation of the noise on class means")
    threshold: float = option(
        -100.0,
        "cosine of mean features from which clients share a cluster; "
        "-1 or less: one cluster for all, above 1: one for each client",
    )
    initial: Literal["glorot", "uniform"] = option(
        "glorot", "first weights: Glorot like every method, or the program's U(0, 1)"
    )
    dropout_own: bool = option(False, "no dropout, as in the authors' program, in place of the run's")

    def __post_init__(self) -> None:
        if self.warm_up < 0 or self.discriminator_steps < 0:
            raise BadConfig("warm_up and discriminator_steps must be 0 or more")
        if self.gan_weight < 0 or self.noise < 0:
            raise BadConfig("gan_weight and noise must be 0 or more")

    @property
    def compares_features(self) -> bool:
        """Whether feature means are sent.

        Cosines lie in [-1, 1], so any other threshold decides without them.
        """
        return -1 < self.threshold <= 1

    @property
    def averages(self) -> bool:
        """Clusters of clients have models of their own."""
        return self.threshold <= -1

    @property
    def needs_single_replies(self) -> str:
        return "" if self.averages else "GraphFedMig with clusters compares the clients with each other"

    def weights(self, info: TaskInfo, fields: Fields, reply: Reply) -> Tensors:
        # A million times the weights of ``_merge``: sums are of whole numbers, and information can be near 0.
        say = torch.ones(1) if self.mi == "official" else 1e6 * reply.tensors["information"] + 1
        say = say if reply.num_train > 0 else torch.zeros(1)
        nodes = torch.tensor([float(reply.num_train)])
        own = {"encoder": say, "classifier": say, "judged": nodes}
        return {
            name: own.get(name.split(".")[0], weight)
            for name, weight in super().weights(info, fields, reply).items()
        }

    def prepare(self, data: ClientData, model: Backbone) -> Prepared:
        return Prepared(model.inputs(data), factor_of(data.graph.x), class_counts(data))

    def client_step(
        self, client: Client[Prepared], message: Tensors, state: Tensors
    ) -> tuple[Reply, Tensors]:
        # Choice: the warm-up belongs to round 1. A client that joins later starts from a trained model and
        # needs none.
        epochs = client.training.epochs + (self.warm_up if client.round == 1 else 0)
        if self.dropout_own:
            client = client.dropping(0.0)
        params, state, loss = fit(
            client, model_part(message), state, self._loss(client, message), epochs=epochs
        )
        fake, real = self._own_and_idealised_logits(client, params)
        judge, state, _ = fit(
            client,
            with_prefix(message, "discriminator."),
            state,
            imitation(fake, real),
            epochs=self.discriminator_steps,
            stage="judge",
        )
        sent = {**params, **judge, "judged.mean": mean_judgement(judge, fake, message["judged.mean"])}
        sent["information"] = mutual_information(
            fake.argmax(1), client.prepared.inputs.labels, client.info.num_classes
        )
        if self.compares_features:
            sent["feature.mean"] = column_means(client.prepared.raw)
        return reply(client, sent, loss=loss), {**state, **params}

    def _loss(self, client: Client[Prepared], message: Tensors) -> Gradient:
        """Cross-entropy plus the weighted divergence.

        The divergence needs a mean judgement, so it begins in round 2.
        """
        judgement = message["judged.mean"]
        if float(message["cluster.size"]) == 0 or self.gan_weight == 0:
            return cross_entropy(client, client.prepared.inputs)

        def criterion(logits: Tensor, labels: Tensor) -> Tensor:
            return F.cross_entropy(logits, labels) + self.gan_weight * divergence(logits.mean(0), judgement)

        return of_logits(client, client.prepared.inputs, criterion)

    @torch.no_grad()
    def _own_and_idealised_logits(self, client: Client[Prepared], params: Tensors) -> tuple[Tensor, Tensor]:
        """Logits of the training nodes, [t, C], and the logits of the same nodes made ideal, [t, C].

        An ideal node has the mean features of its class, plus noise. All other nodes keep their features.
        Choice: means and noise are taken after the product with W1, so that no dense [t, d] matrix is built.
        The mean of a product is the product of the mean. The noise then acts on hidden units instead of
        features.
        """
        prepared, model, inputs = client.prepared, client.model, client.prepared.inputs
        after: Callable[[Client[Prepared], Tensors, Tensor], Tensor]
        if isinstance(model.network, Convolution):
            after, wide = logits_after_first_product, side_by_side(model, params["encoder.weight"])
            # [n, h] or [n, 2h]
            values = prepared.raw.times(wide) if isinstance(prepared.raw, Sparse) else prepared.raw @ wide
        else:
            # Choice: another network may have no such product. Means and noise are then taken of its H.
            after, values = logits_after_encoder, model.encode(params, inputs)
        own = after(client, params, values)
        sums = class_sums(values[inputs.train], inputs.labels, client.info.num_classes)
        means = sums / prepared.counts.clamp(min=1)[:, None]
        noise = client.draws("class mean noise").standard_normal(
            (inputs.train.shape[0], values.shape[1]), dtype=np.float32
        )
        changed = means[inputs.labels] + self.noise * torch.from_numpy(noise)
        return own, after(client, params, values.index_copy(0, inputs.train, changed))

    def server_init(self, server: Server, params: Tensors) -> Tensors:
        draws, num_classes = server.torch_draws("discriminator"), server.info.num_classes
        if self.initial == "uniform":
            uniform = server.torch_draws("uniform weights")
            params = {
                name: torch.rand(p.shape, generator=uniform) if p.ndim == 2 else p
                for name, p in params.items()
            }
        judge: Tensors = {}
        for i, (rows, columns) in enumerate(zip((num_classes, *WIDTHS), (*WIDTHS, num_classes), strict=True)):
            judge[f"discriminator.{i}.weight"] = glorot(rows, columns, draws)
            judge[f"discriminator.{i}.bias"] = torch.zeros(columns)
        return {**params, **judge, "judged.mean": torch.zeros(num_classes), "cluster.size": torch.zeros(1)}

    def message(self, tensors: Tensors, client_id: int) -> Tensors:
        """The tensors of the client's cluster. Where it has none yet, they are the initial ones."""
        own = renamed(tensors, f"client.{client_id}.", "")
        return own or {name: value for name, value in tensors.items() if not name.startswith("client.")}

    def server_step(self, server: Server, tensors: Tensors, replies: Mapping[int, Reply]) -> Tensors:
        if self.threshold <= -1:
            return self._merge(server, tensors, replies)
        out = dict(tensors)
        # Choice: the clients of a round are clustered among themselves. An absent one keeps the model of its
        # last cluster.
        for members in self._clusters(replies):
            merged = self._merge(server, self.message(tensors, members[0]), {k: replies[k] for k in members})
            for k in members:
                out.update(renamed(merged, "", f"client.{k}."))
        return out

    def _clusters(self, replies: Mapping[int, Reply]) -> list[list[int]]:
        if not self.compares_features:
            return [[k] for k in sorted(replies)]
        return clustered({k: replies[k].tensors["feature.mean"] for k in sorted(replies)}, self.threshold)

    def _merge(self, server: Server, tensors: Tensors, replies: Mapping[int, Reply]) -> Tensors:
        """A cluster's tensors from its members' replies."""
        trained = {k: r for k, r in replies.items() if r.num_train > 0}
        if not trained:
            return tensors
        uniform = self.mi == "official"
        say = {k: 1.0 if uniform else float(r.tensors["information"]) + 1e-6 for k, r in trained.items()}
        nodes = {k: float(r.num_train) for k, r in trained.items()}
        return {
            **weighted_mean(model_part(tensors), trained, say),
            **average(server.info, with_prefix(tensors, "discriminator."), trained),
            **weighted_mean(with_prefix(tensors, "judged."), trained, nodes),
            "cluster.size": torch.tensor([float(sum(r.clients for r in trained.values()))]),
        }

    def reply_fields(self, server: Server, tensors: Tensors) -> Fields:
        fields = same_fields({**model_part(tensors), **with_prefix(tensors, "discriminator.", "judged.")})
        for name, axis in OF_CLASSES.items():
            fields[name] = Field(fields[name].shape, classes=axis)
        means = {"feature.mean": Field((server.info.num_features,))} if self.compares_features else {}
        return {**fields, "information": Field((1,), "weight"), **means}

    def predict(self, client: Client[Prepared], tensors: Tensors) -> Tensor:
        return client.model.predict(tensors, client.prepared.inputs)


def logits_after_first_product(client: Client[Prepared], params: Tensors, values: Tensor) -> Tensor:
    """The rest of the network on X W1, with the identity for W1: [t, C].

    For sage, X times the other half is beside it.
    """
    model, inputs, spread = client.model, client.prepared.inputs, values
    if convolves_first(model):
        spread = inputs.operator.times(values[:, : model.hidden].contiguous())
    if values.shape[1] > model.hidden:
        spread = spread + values[:, model.hidden :]
    rest = {**params, "encoder.weight": torch.eye(model.hidden)}
    changed = dataclasses.replace(inputs, features=spread)
    return model.logits(rest, model.encode(rest, changed), changed, train_only=True)


def logits_after_encoder(client: Client[Prepared], params: Tensors, hidden: Tensor) -> Tensor:
    """The rest of the network on H: [t, C]."""
    return client.model.logits(params, hidden, client.prepared.inputs, train_only=True)


def judged(params: Tensors, logits: Tensor) -> Tensor:
    """The discriminator before its softmax: [t, C]."""
    rows, last = logits, len(WIDTHS)
    for i in range(last + 1):
        rows = affine(rows, params[f"discriminator.{i}.weight"], params[f"discriminator.{i}.bias"])
        rows = F.leaky_relu(rows, 0.02) if i < last else rows
    return rows


def imitation(fake: Tensor, real: Tensor) -> Loss:
    """Cross-entropy of D(fake) against softmax(real), over classes."""
    target = torch.softmax(real, dim=1)
    return lambda params: F.cross_entropy(judged(params, fake), target)


def mean_judgement(params: Tensors, fake: Tensor, fallback: Tensor) -> Tensor:
    """The mean of D(fake) over the training nodes, [C]. Where there are none, it is what was received."""
    return torch.softmax(judged(params, fake), dim=1).mean(0) if fake.shape[0] else fallback


def divergence(mean_logit: Tensor, judgement: Tensor) -> Tensor:
    """KL(m || p) / C, where p is the softmax of the mean training logit and m = (p + p̄) / 2 has no gradient.

    So its gradient in the mean logit is (p - p̄) / 2 C. The program takes C for the size of a batch.
    Choice: the program adds the cluster's size times KL(m || softmax p̄) / C and a constant. Neither has a
    gradient, because m is detached, so both are left out.
    """
    log_p = torch.log_softmax(mean_logit, dim=0)
    middle = ((log_p.exp() + judgement) / 2).clamp(min=1e-12).detach()
    return (middle * (middle.log() - log_p)).sum() / mean_logit.shape[0]


def mutual_information(predicted: Tensor, labels: Tensor, num_classes: int) -> Tensor:
    """I = Σ p(a, b) log(p(a, b) / (p(a) p(b))) of predictions and labels, in nats: float32 [1], never
    negative.
    """
    pairs = torch.bincount(predicted * num_classes + labels, minlength=num_classes**2).to(torch.float64)
    joint = (pairs / pairs.sum().clamp(min=1)).reshape(num_classes, num_classes)
    independent = joint.sum(1, keepdim=True) * joint.sum(0, keepdim=True)
    seen = joint > 0
    return (
        (joint[seen] * (joint[seen] / independent[seen]).log())
        .sum()
        .clamp(min=0)
        .to(torch.float32)
        .reshape(1)
    )


def column_means(x: Sparse | Tensor) -> Tensor:
    """[d]."""
    if isinstance(x, Tensor):
        return x.mean(0)
    return x.transposed_times(torch.ones(x.shape[0], 1)).reshape(-1) / x.shape[0]


def clustered(means: Mapping[int, Tensor], threshold: float) -> list[list[int]]:
    """Merge the two most similar clusters while the cosine of their means is at least ``threshold``."""
    clusters = [[k] for k in means]
    while len(clusters) > 1:
        centres = torch.stack(
            [torch.stack([means[k] for k in c]).to(torch.float64).mean(0) for c in clusters]
        )
        unit = F.normalize(centres, dim=1)
        cosines = (unit @ unit.t()).numpy()
        np.fill_diagonal(cosines, -np.inf)
        first, second = sorted(int(i) for i in np.unravel_index(cosines.argmax(), cosines.shape))
        if cosines[first, second] < threshold:
            break
        clusters[first] += clusters.pop(second)
    return [sorted(c) for c in clusters]
