"""FedSpray: soft targets of a shared MLP with class-wise structure proxies regularise each client's private
network.

Fu et al., "Federated Graph Learning with Structure Proxy Alignment", KDD 2024, arXiv 2408.09393.
Official code: xbfu/FedSpray @7e3d589.
Down: mlp.encoder [d, h] + [h], mlp.joint and mlp.plain [h, C] + [C] each, proxy.class [C, h].
Up: the same and proxy.count [C].
Bytes per client: down 4 (d·h + h + 2 (h·C + C) + C·h), up 4 C more; with share_gnn 4 |Θ| more each way.
Ours: Glorot weights (the official network starts from U(0, 1)), and the run's optimiser. The proxies have a
learning rate of their own and no weight decay. A class that no client of the round owns keeps its proxy.
Where code and paper differ, the default follows the paper, and the preset "authors_values" the code. The
run's dropout, 0.5 by default, acts on the private network; the authors have none (``dropout_own``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, final

import torch
import torch.nn.functional as F
from torch import Tensor

from fedepd.errors import BadConfig
from fedepd.methods.base import Client, Method, Server
from fedepd.methods.steps import (
    average,
    class_counts,
    class_mean,
    class_sums,
    cross_entropy,
    fit,
    model_part,
    own_model,
    reply,
    weighted_mean,
    with_prefix,
)
from fedepd.network.backbones import Backbone
from fedepd.network.contract import Inputs, glorot
from fedepd.network.products import affine
from fedepd.network.sparse import Sparse, factor_of, spmm
from fedepd.network.training import Objective
from fedepd.options import ladder, option
from fedepd.types import ClientData, Field, Fields, Reply, TaskInfo, Tensors, same_fields

PROXY_START = 0.1
"""Every coordinate of a proxy before training."""


@dataclass(frozen=True, eq=False)
class Prepared:
    inputs: Inputs
    features: Sparse | Tensor
    """X as it is, [n, d]."""
    train_features: Sparse | Tensor
    """Its training rows, [t, d]."""
    counts: Tensor
    """Training nodes per class, int64 [C]."""


@final
@dataclass(frozen=True)
class FedSpray(Method[Prepared]):
    label: ClassVar[str] = "FedSpray"
    weighs_edges: ClassVar[bool] = True
    has_global: ClassVar[bool] = False
    added: ClassVar[frozenset[str]] = frozenset({"dropout_own"})
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "default": {},
        "authors_values": {
            "lam": 1.0,
            "train_proxies": "kept",
            "index_start": True,
            "second_head": "first",
            "proxy_weights": "shares",
            "optimizer_own": True,
            "dropout_own": True,
        },
    }

    # Choice: 0.3 instead of 1, by the search that every method had (docs/methods.md).
    lam: float = option(
        0.3,
        "weight of the soft targets (lambda 1); 0 is isolated training, or FedAvg with share_gnn",
        search=ladder(0.1, 0.3, 1.0, below=0.03, above=3.0),
    )
    threshold: float = option(
        0.7,
        "confidence above which an unlabelled node's soft target counts; 1: training nodes alone",
        search=ladder(0.5, 0.7, 0.9, below=0.3, above=1.0),
    )
    proxy_lr: float = option(
        0.02, "learning rate of the node proxies", search=ladder(5e-3, 2e-2, 8e-2, below=1e-3, above=0.3)
    )
    train_proxies: Literal["global", "kept"] = option(
        "global",
        "training nodes' proxies start each round from the global proxy of their class (paper), "
        "or are kept across rounds (code)",
    )
    index_start: bool = option(
        False, "first class proxies 0.01 times the class's number, as in the code, instead of 0.1"
    )
    second_head: Literal["own", "first"] = option(
        "own", "the proxy-free head starts from its own average, or from the other head's (code)"
    )
    proxy_weights: Literal["counts", "shares"] = option(
        "counts",
        "a client's weight in a class's proxy: its training nodes of the class (paper), "
        "or their share of its training nodes (code)",
    )
    share_gnn: bool = option(False, "average the networks too, as FedAvg does")
    optimizer_own: bool = option(
        False, "the official Adam, lr 0.003 without weight decay, in place of the run's optimiser"
    )
    dropout_own: bool = option(False, "no dropout, as in the authors' code, in place of the run's")

    def __post_init__(self) -> None:
        if self.lam < 0:
            raise BadConfig(f"lam is {self.lam}; give 0 or more")
        if not self.proxy_lr > 0:
            raise BadConfig(f"proxy_lr is {self.proxy_lr}; the learning rate must be positive")

    def weights(self, info: TaskInfo, fields: Fields, reply: Reply) -> Tensors:
        # A thousand times the weights of ``server_step``: sums are of whole numbers, and a share can be near
        # 0.
        nodes, shares = torch.tensor([float(reply.num_train)]), 1000 * self._say(reply.tensors["proxy.count"])
        return {
            name: shares if name == "proxy.class" else nodes if name.startswith("mlp.") else weight
            for name, weight in super().weights(info, fields, reply).items()
        }

    def _say(self, counts: Tensor) -> Tensor:
        """A client's weight in each class's proxy, from its training nodes of that class: [..., C]."""
        if self.proxy_weights == "counts":
            return counts
        return counts / counts.sum(-1, keepdim=True).clamp(min=1)

    def prepare(self, data: ClientData, model: Backbone) -> Prepared:
        inputs, features = model.inputs(data), factor_of(data.graph.x)
        rows = features.rows(inputs.train) if isinstance(features, Sparse) else features[inputs.train]
        return Prepared(inputs, features, rows, class_counts(data))

    def client_step(
        self, client: Client[Prepared], message: Tensors, state: Tensors
    ) -> tuple[Reply, Tensors]:
        if self.optimizer_own:
            client = client.trained_by(optimizer="adam", lr=0.003, weight_decay=0.0)
        if self.dropout_own:
            client = client.dropping(0.0)
        labels, num_classes = client.prepared.inputs.labels, client.info.num_classes
        proxies = self._train_proxies(client, message, state)  # [t, h]
        received = model_part(message) if self.share_gnn else own_model(client, state)
        params, state, loss = fit(client, received, state, self._network_loss(client, message, proxies))
        mlp, proxies, state = self._fit_mlp(client, message, state, params, proxies)
        counts = client.prepared.counts.to(torch.float32)
        sent = {
            **mlp,
            "proxy.class": class_sums(proxies, labels, num_classes) / counts.clamp(min=1)[:, None],
            "proxy.count": counts,
            **(params if self.share_gnn else {}),
        }
        return reply(client, sent, loss=loss), {**state, **params, "proxy.train": proxies}

    def _train_proxies(self, client: Client[Prepared], message: Tensors, state: Tensors) -> Tensor:
        """s_i of the training nodes at the start of the round, [t, h]."""
        labels = client.prepared.inputs.labels
        if self.train_proxies == "global":
            return message["proxy.class"][labels]
        return state.get("proxy.train", torch.full((labels.shape[0], client.model.hidden), PROXY_START))

    def _network_loss(self, client: Client[Prepared], message: Tensors, proxies: Tensor) -> Objective:
        """Cross-entropy + lam · mean KL to the soft targets of the reliable nodes."""
        inputs = client.prepared.inputs
        if self.lam == 0:
            return cross_entropy(client, inputs)
        targets, reliable = self._soft_targets(client, message, proxies)
        draws = client.draws("dropout")
        believed, share = targets.log_softmax(1), self.lam / max(reliable.shape[0], 1)
        lowest = share * float((believed.exp() * believed).sum())  # what KL adds to the cross-entropy
        # The weight of each log-probability in the loss, [n, C]. Other nodes have rows of zeros, which is
        # cheaper than to look the chosen ones up.
        wanted = torch.zeros(client.data.graph.num_nodes, targets.shape[1]).index_copy_(
            0, reliable, share * believed.exp()
        )
        wanted[inputs.train, inputs.labels] += 1 / max(inputs.train.shape[0], 1)

        def loss(params: Tensors) -> Tensor:
            logits = client.model.logits(params, client.model.encode(params, inputs, draws), inputs)  # [n, C]
            return lowest - torch.dot(wanted.view(-1), logits.log_softmax(1).view(-1))

        return loss

    def _soft_targets(
        self, client: Client[Prepared], message: Tensors, proxies: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The logits of the soft targets [r, C] and the reliable nodes [r], from the received MLP.

        An unlabelled node has a mixture of class proxies.
        """
        train = client.prepared.inputs.train
        with torch.no_grad():
            hidden = encode(message, client.prepared.features)  # [n, h]
            guess = head(message, "plain", hidden).softmax(1)  # [n, C]
            every = (guess @ message["proxy.class"]).index_copy(0, train, proxies)  # [n, h]
            sure = (guess.amax(1) > self.threshold).index_fill(0, train, True)
            reliable = sure.nonzero().reshape(-1)
            return head(message, "joint", (hidden + every)[reliable]), reliable

    def _fit_mlp(
        self, client: Client[Prepared], message: Tensors, state: Tensors, network: Tensors, proxies: Tensor
    ) -> tuple[Tensors, Tensor, Tensors]:
        """Train the shared MLP and the training nodes' proxies on the labels and on the network's
        predictions.

        Returns the MLP, the proxies and the state.
        """
        prepared, labels = client.prepared, client.prepared.inputs.labels
        mlp = with_prefix(message, "mlp.")
        if self.second_head == "first":
            mlp = {
                **mlp,
                "mlp.plain.weight": mlp["mlp.joint.weight"],
                "mlp.plain.bias": mlp["mlp.joint.bias"],
            }
        with torch.no_grad():
            hidden = client.model.encode(network, prepared.inputs)
            logits = client.model.logits(network, hidden, prepared.inputs, train_only=True)
            teacher = logits.softmax(1)  # [t, C]
        # Adam's step does not depend on the scale of the gradient. So units that are trained at the run's
        # rate move the proxies at proxy_lr. A step of plain SGD grows with the gradient, hence the root.
        ratio = self.proxy_lr / client.training.lr
        scale = ratio if client.training.optimizer == "adam" else ratio**0.5
        decay = client.training.weight_decay

        def loss(params: Tensors) -> Tensor:
            # Choice: the MLP has the run's weight decay, as everywhere. The proxies have none, because it
            # would drown their gradients (1/t each).
            own = {name: decayed(params[name], decay) for name in mlp}
            hidden = encode(own, prepared.train_features)  # [t, h]
            supervised = F.cross_entropy(head(own, "plain", hidden), labels)
            joint = head(own, "joint", hidden + scale * params["units"])
            return supervised + F.cross_entropy(joint, teacher)  # the KL divergence less a constant

        start = {**mlp, "units": proxies / scale}
        params, state, _ = fit(client, start, state, loss, stage="mlp", weight_decay=0.0)
        return {name: params[name] for name in mlp}, scale * params["units"], state

    def server_init(self, server: Server, params: Tensors) -> Tensors:
        classes, width, draws = server.info.num_classes, server.model.hidden, server.torch_draws("mlp")
        shared = dict(params) if self.share_gnn else {}
        shapes = {
            "encoder": (server.info.num_features, width),
            "joint": (width, classes),
            "plain": (width, classes),
        }
        for name, (rows, columns) in shapes.items():
            shared[f"mlp.{name}.weight"], shared[f"mlp.{name}.bias"] = (
                glorot(rows, columns, draws),
                torch.zeros(columns),
            )
        first = 0.01 * torch.arange(classes) if self.index_start else torch.full((classes,), PROXY_START)
        return {**shared, "proxy.class": first[:, None].repeat(1, width)}

    def server_step(self, server: Server, tensors: Tensors, replies: Mapping[int, Reply]) -> Tensors:
        ordered = [replies[k] for k in sorted(replies)]
        counts = torch.stack([r.tensors["proxy.count"] for r in ordered])  # [K, C]
        weights = self._say(counts)
        proxies = [r.tensors["proxy.class"] for r in ordered]
        return {
            **average(server.info, model_part(tensors), replies),
            **weighted_mean(
                with_prefix(tensors, "mlp."), replies, {k: float(r.num_train) for k, r in replies.items()}
            ),
            "proxy.class": class_mean(tensors["proxy.class"], zip(proxies, weights, strict=True)),
        }

    def reply_fields(self, server: Server, tensors: Tensors) -> Fields:
        fields = same_fields(tensors)
        for name in ("mlp.joint", "mlp.plain"):  # heads with a column for each class
            fields[f"{name}.weight"] = Field(fields[f"{name}.weight"].shape, classes=1)
            fields[f"{name}.bias"] = Field(fields[f"{name}.bias"].shape, classes=0)
        fields["proxy.class"] = Field(fields["proxy.class"].shape, "mean", of="proxy.count")
        return {**fields, "proxy.count": Field((server.info.num_classes,), "count")}

    def predict(self, client: Client[Prepared], tensors: Tensors) -> Tensor:
        return client.model.predict(own_model(client, tensors), client.prepared.inputs)


def encode(params: Tensors, features: Sparse | Tensor) -> Tensor:
    """φ(x), [rows, h]."""
    weight = params["mlp.encoder.weight"]
    product = spmm(features, weight) if isinstance(features, Sparse) else features @ weight
    return torch.relu(product + params["mlp.encoder.bias"])


def head(params: Tensors, name: str, hidden: Tensor) -> Tensor:
    """Logits of the head "joint" (reads φ(x) + s) or "plain" (reads φ(x)), [rows, C]."""
    return affine(hidden, params[f"mlp.{name}.weight"], params[f"mlp.{name}.bias"])


def decayed(parameter: Tensor, decay: float) -> Tensor:
    """The parameter. Its gradient will be that of the loss plus decay / 2 times the parameter's square."""
    out: Tensor = _Decayed.apply(parameter, decay)  # type: ignore[no-untyped-call]
    return out


class _Decayed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, parameter: Tensor, decay: float) -> Tensor:
        ctx.save_for_backward(parameter)
        ctx.decay = decay
        return parameter.detach()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (parameter,) = ctx.saved_tensors
        return torch.add(grads[0], parameter, alpha=ctx.decay), None
