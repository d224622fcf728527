"""Our methods against numbers that their authors' released programs gave.

``fixtures/*.json`` hold inputs and outputs of those programs at small fixed weights and graphs. ``made by``
says which program, commit and function. Nothing of the programs is here. Where ours differs on purpose, a
test states the difference and its size, and docs/reading-the-rivals.md says why. Systems of the related work
are in test_released_related.py and test_released_tails.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fedepd.methods.base import Client, Method
from fedepd.methods.creff import Wanted, head_gradients, mismatch, owner_mean
from fedepd.methods.fedavg import FedAvg
from fedepd.methods.fedgrab import Balancer, FedGraB, plain_error
from fedepd.methods.fedgta import FedGTA, confidence, moments_of, sharing
from fedepd.methods.fedproto import FedProto
from fedepd.methods.fedprox import FedProx
from fedepd.methods.fedspray import FedSpray
from fedepd.methods.fedtgp import FedTGP, adaptive_margin
from fedepd.methods.graphfedmig import divergence
from fedepd.methods.graphsmote import GraphSMOTE, between, in_batches, nearest, reconstruction
from fedepd.methods.hiertail import HierTail
from fedepd.methods.lws import balanced_loss
from fedepd.methods.moon import Moon
from fedepd.methods.parts.contrast import balanced_contrast, group_contrast
from fedepd.methods.parts.enlarged import edge_scores
from fedepd.methods.parts.prototypes import penalty
from fedepd.methods.parts.translated import View, missing
from fedepd.methods.s2fgl import Agreement, importance
from fedepd.methods.scaffold import Scaffold
from fedepd.methods.steps import class_mean, class_sums, model_part, with_prefix
from fedepd.methods.tailgnn import Judge, TailGNN
from fedepd.network.backbones import Backbone
from fedepd.network.sparse import adjacency, csr_tensor, neighbour_mean
from fedepd.network.training import Training, by_autograd
from fedepd.types import Reply, Tensors
from released import client_data, near, numbers, tensors
from toy import make_client, make_server


def federation(
    method: Method[Any], found: list[dict[str, Any]], model: Backbone, start: Tensors, states: list[Tensors]
) -> Any:
    """Round after round: its number, the server's tensors, what the clients' models are, the replies."""
    data = [client_data(each, k) for k, each in enumerate(found)]
    server, held = make_server(data, model, Training()), start
    for number in range(1, 4):
        replies: dict[int, Reply] = {}
        for k, each in enumerate(data):
            client = make_client(method, each, model, round=number)
            replies[k], states[k] = method.client_step(client, method.message(held, k), states[k])
        held = method.server_step(server, held, replies)
        yield number, held, replies


OPENFGL = Backbone(hidden=5, dropout=0.0)


def openfgl(
    method: Method[Any], name: str, start: Tensors, states: list[Tensors], fixture: str = "openfgl"
) -> Any:
    """Rounds 1 and 3, each with what OpenFGL had."""
    found = numbers(fixture)
    for number, held, replies in federation(method, found["clients"], OPENFGL, start, states):
        if number != 2:
            yield held, replies, found[name][number // 2]


def logits_of(params: Tensors, k: int) -> Tensor:
    client = make_client(FedAvg(), client_data(numbers("openfgl")["clients"][k], k), OPENFGL)
    return OPENFGL.predict(params, client.prepared)


def test_fedavg_is_openfgls() -> None:
    """After one round and after three, with Adam's moments kept: the average and every client's logits."""
    start = tensors(numbers("openfgl")["start"])
    for held, replies, theirs in openfgl(FedAvg(), "fedavg", start, [{}, {}, {}]):
        for name, value in theirs["global"].items():
            near(held[name], value)
        for k, answer in replies.items():
            near(logits_of(answer.tensors, k), theirs["logits"][k])


@pytest.mark.parametrize(
    ("name", "method"),
    [("fedprox", FedProx(mu=0.001)), ("moon", Moon()), ("scaffold", Scaffold(**Scaffold.presets["openfgl"]))],
)
def test_general_rivals_are_openfgls(name: str, method: Method[Any]) -> None:
    """The average after one round and after three, and SCAFFOLD's variates.

    OpenFGL weighs variates alike and models by size. Here all clients have the same size. A variate divides
    differences of weights by 3 · 0.01, which multiplies their rounding, and Adam that of gradients near 0.
    """
    digits = 5e-4 if name == "scaffold" else 1e-5
    found = numbers("openfgl_general")
    server = make_server([client_data(each) for each in found["clients"]], OPENFGL, Training())
    start = method.server_init(server, tensors(found["start"]))
    for held, _, theirs in openfgl(method, name, start, [{}, {}, {}], "openfgl_general"):
        for key, value in theirs["global"].items():
            torch.testing.assert_close(held[key], torch.tensor(value), rtol=digits, atol=digits)
        for key, value in theirs.get("control", {}).items():
            torch.testing.assert_close(held[f"control.{key}"], torch.tensor(value), rtol=1e-2, atol=1e-2)


def test_fedtgps_server_is_the_authors() -> None:
    """Five steps of plain gradient descent in one batch: the margin, and the prototypes of all classes."""
    found = numbers("fedtgp")
    maker, rows, held = (
        tensors(found["maker"]),
        torch.tensor(found["prototypes"]),
        torch.tensor(found["held"]),
    )
    answers = {
        k: Reply({"prototype.mean": rows[k] * held[k][:, None], "prototype.count": held[k].float()}, 9, 3)
        for k in range(3)
    }
    used, classes = rows[held > 0], (held > 0).nonzero()[:, 1]
    assert adaptive_margin(used, classes, 100.0) == pytest.approx(found["margin"], rel=1e-5)
    server = make_server([client_data(numbers("openfgl")["clients"][0])] * 3, Backbone(hidden=3), Training())
    before = {**maker, "prototype.mean": torch.zeros(4, 3), "prototype.count": torch.zeros(4)}
    after = FedTGP(server_epochs=5).server_step(server, before, answers)
    near(after["prototype.mean"], found["global"])


def test_fedproto_is_openfgls() -> None:
    """Preset ``openfgl``: summed penalty, zeros for absent classes."""
    method, start = FedProto(**FedProto.presets["openfgl"]), tensors(numbers("openfgl")["start"])
    states = [dict(start) for _ in range(3)]
    empty = {"prototype.mean": torch.zeros(3, 5), "prototype.count": torch.zeros(3)}
    for held, _, theirs in openfgl(method, "fedproto", empty, states):
        near(held["prototype.mean"], theirs["prototypes"])
        for k in range(3):
            near(logits_of(model_part(states[k]), k), theirs["logits"][k])


def test_fedgta_is_openfgls() -> None:
    """Preset ``openfgl``. Clients 1 and 2 have a cosine of .34 and do not share.

    OpenFGL counts each edge at both ends twice, so its confidence is double: the average is the same.
    """
    method, start = FedGTA(**FedGTA.presets["openfgl"]), tensors(numbers("openfgl")["start"])
    states: list[Tensors] = [{}, {}, {}]
    for held, replies, theirs in openfgl(method, "fedgta", start, states):
        for k, answer in replies.items():
            near(answer.tensors["moments"].reshape(-1), theirs["moments"][k])
            near(2 * answer.num_nodes * answer.tensors["confidence"][0], theirs["confidence"][k])
            near(logits_of(model_part(states[k]), k), theirs["logits"][k])
            for name, value in theirs["aggregated"][k].items():
                near(method.message(held, k)[name], value)
        assert (sharing(replies, 0.5) > 0).tolist() == [[True] * 3, [True, True, False], [True, False, True]]


def test_fedgta_is_its_authors() -> None:
    """The default: propagation from one-hot labels, moments, confidence, and each client's average."""
    found, replies = numbers("fedgta"), {}
    for k, (graph, theirs) in enumerate(zip(numbers("openfgl")["clients"], found["clients"], strict=True)):
        method = FedGTA()
        prepared = make_client(method, client_data(graph, k), OPENFGL).prepared
        spread = method._propagate(prepared, torch.tensor(theirs["soft"]))
        near(spread, theirs["propagated"])
        sharp, soft = (
            (spread / heat).softmax(1).index_copy(0, prepared.inputs.train, prepared.one_hot)
            for heat in (1.0, method.temperature)
        )
        moments, trust = moments_of(sharp, 10, "hybrid"), confidence(soft, prepared.degrees)
        near(moments, theirs["moments"])
        near(trust, theirs["confidence"])
        weight = (k + 1) ** 2 * torch.tensor([[1.0, 2.0], [3.0, 4.0]])
        sent = {"moments": moments, "confidence": trust.float().reshape(1), "encoder.weight": weight}
        replies[k] = Reply(sent, 1, 1)
    server = make_server([client_data(graph) for graph in numbers("openfgl")["clients"]], OPENFGL, Training())
    held = FedGTA().server_step(server, {}, replies)
    for k, theirs in enumerate(found["aggregated"]):
        near(held[f"client{k}.encoder.weight"], theirs)


def test_fedproto_is_its_authors() -> None:
    """Penalty, its gradient, local and global prototypes. A class without a global one costs nothing."""
    found = numbers("fedproto")
    hidden, labels = torch.tensor(found["hidden"], requires_grad=True), torch.tensor(found["labels"])
    known = torch.tensor([*found["prototypes"], [0.0] * 3])
    loss = penalty(hidden, known[labels], (labels < 2) / len(labels))
    near(loss.detach(), found["penalty"])
    # The step also had the cross-entropy, which does not reach the embedding there.
    near(torch.autograd.grad(loss, hidden)[0], found["gradient"])
    counts = torch.bincount(labels)
    local = class_sums(hidden.detach(), labels, 3) / counts[:, None]
    near(local, found["local"])
    second = torch.tensor([*found["second_client"], [0.0] * 3])
    owned = (counts.float() > 0).float(), torch.tensor([1.0, 1.0, 0.0])
    near(class_mean(torch.zeros(3, 3), zip((local, second), owned, strict=True)), found["global"])


def hiertail() -> tuple[dict[str, Any], HierTail, Client[Any], Tensors]:
    found, method = numbers("hiertail"), HierTail(cap=0)
    client = make_client(method, client_data(found["graph"]), OPENFGL)
    return found, method, client, tensors(found["weights"])


def test_hiertail_is_its_authors() -> None:
    """Logits, levels, the whole loss and its gradient. Without the loader's loops logits differ by .13."""
    found, method, client, params = hiertail()
    near(method.predict(client, params), found["logits"])
    levels, _ = method._network(client, params, None)
    nodes = torch.arange(24)  # theirs are in the order of the scores, ours in that of the nodes
    for ours, theirs, kept in zip(levels, found["levels"], found["perms"], strict=True):
        near(ours, torch.tensor(theirs)[nodes.argsort()])
        nodes = nodes[kept]
    loss, grads = by_autograd(method._loss(client), sorted(params)).of(params)
    assert loss == pytest.approx(found["loss"], rel=1e-5)
    for name, theirs in found["gradient"].items():
        near(grads[name], theirs)
    other = torch.tensor(found["without_loader"]) - torch.tensor(found["logits"])
    assert float(other.abs().max()) == pytest.approx(0.1273, abs=1e-4)


def test_hiertails_contrast_but_for_its_mixed_numberings() -> None:
    """The authors label nodes by number and centres by position: 2.24 and 1.40 instead of 1.90 and 1.21."""
    found, method, client, params = hiertail()
    logits = method.predict(client, params)[client.prepared.inputs.train]
    near(balanced_contrast(logits, client.prepared.inputs.labels, 1.0), found["contrast_logits"])
    first, *centres = (torch.tensor(level) for level in found["levels"])
    for ours, theirs in zip(centres, found["groups"], strict=True):
        near(group_contrast(first, ours, 1.0), theirs)
    assert found["groups_mixed"] == pytest.approx([2.2431, 1.3953], abs=1e-4)
    assert found["groups"] == pytest.approx([1.9022, 1.2094], abs=1e-4)


class Always:
    """Draws one shift again and again. The mean over all shifts is the expectation of the sampled sum."""

    def __init__(self, shift: int) -> None:
        self.shift = shift

    def integers(self, n: int, size: int) -> Any:
        return np.full(size, self.shift)


@pytest.mark.parametrize("case", ["first", "other"])
def test_graphsmote_is_its_authors(case: str) -> None:
    """Synthetic rows, edge scores, wiring, and the reconstruction with its gradients.

    The authors take a neighbour's place within its class for a node's number. In ``other`` these differ, and
    so do 10 of 36 possible pairs. The rows themselves are right in both.
    """
    found = numbers("graphsmote")[case]
    data, hidden = client_data(found["graph"], classes=2), torch.tensor(found["embedding"])
    parents = (data.hidden().graph.y == 1).nonzero().reshape(-1)
    partners = nearest(hidden, in_batches([parents]))
    rows = between(hidden, parents, partners, torch.full((len(parents),), found["place"]))
    near(rows, found["synthetic"])
    adj = adjacency(data.graph.edge_index, data.graph.num_nodes)
    candidates = csr_tensor(adj[parents.numpy()] + adj[partners.numpy()], np.int32)
    ours, theirs = candidates.to_dense() > 0, torch.tensor(found["candidates"]) > 0
    assert int((ours != theirs).sum()) == {"first": 0, "other": 10}[case]
    decoder = torch.tensor(found["decoder"], requires_grad=True)
    if case == "first":
        projected = hidden @ decoder.t()
        scores = torch.zeros(ours.shape)
        scores[ours] = edge_scores(rows @ decoder.t(), projected, candidates).detach()
        near(scores, found["scores"])
        params = {"decoder.weight": decoder.detach()}
        wired = GraphSMOTE()._wire(params, projected.detach(), rows, candidates)
        near(wired.matrix.matrix.to_dense(), found["wired"])
    leaf = hidden.clone().requires_grad_()
    edges = csr_tensor(adj, np.int32)
    sums = [
        reconstruction(leaf @ decoder.t(), edges, Always(shift))  # type: ignore[arg-type]
        for shift in range(len(hidden))
    ]
    loss = torch.stack(sums).mean()
    near(loss.detach(), found["reconstruction"])
    of_hidden, of_decoder = torch.autograd.grad(loss, [leaf, decoder])
    near(of_hidden, found["reconstruction_gradient"])
    near(of_decoder, found["decoder_gradient"])


def test_lws_is_its_authors() -> None:
    """Scaled logits, class-balanced loss, gradient.

    The authors' gradient of an absent class's scale is .0028 and pulls it down in every step; ours is 0.
    """
    found = numbers("lws")
    labels, scale = torch.tensor(found["labels"]), torch.tensor(found["scale"], requires_grad=True)
    logits = torch.tensor(found["rows"]) @ torch.tensor(found["weight"]) + torch.tensor(found["bias"])
    near((scale * logits).detach(), found["logits"])
    loss = balanced_loss(scale, logits, labels, torch.bincount(labels, minlength=4))
    near(loss.detach(), found["loss"])
    gradient = torch.autograd.grad(loss, scale)[0]
    near(gradient[:3], found["gradient"][:3])
    assert float(gradient[3]) == 0
    assert found["gradient"][3] == pytest.approx(0.0028, abs=1e-4)


def test_creff_is_its_authors() -> None:
    """Class gradients, their mean over owners, the mismatch and its gradient in the synthetic features."""
    found = numbers("creff")
    head = {"head.weight": torch.tensor(found["head_weight"]), "head.bias": torch.tensor(found["head_bias"])}
    model, replies = Backbone("mlp", hidden=4), {}
    for k, theirs in enumerate(found["clients"]):
        rows, y = torch.tensor(theirs["rows"]), theirs["labels"]
        # Rows that are 10 higher pass the relu of the extractor as they are; a head with a lower bias gives
        # them the same logits.
        shifted = {"x": (rows + 10).tolist(), "edges": [[0], [1]], "y": y, "train": list(range(len(y)))}
        client = make_client(FedAvg(), client_data(shifted, k), model)
        extractor = {"encoder.weight": torch.eye(4), "encoder.bias": torch.zeros(4)}
        moved = {**head, "head.bias": head["head.bias"] - 10 * head["head.weight"].sum(0)}
        got = head_gradients(client, {**extractor, **moved})
        present = got["gradient.present"].nonzero().reshape(-1).tolist()
        assert [str(c) for c in present] == list(theirs["weight"])
        for at, c in enumerate(present):
            bias = torch.tensor(theirs["bias"][str(c)])
            near(got["gradient.bias"][at], bias)
            # G = Σ e (s + 10)ᵀ / N: ten times the bias's gradient more in every column.
            near(got["gradient.weight"][at] - 10 * bias[:, None], theirs["weight"][str(c)])
        tensors = {**got, "gradient.weight": got["gradient.weight"] - 10 * got["gradient.bias"][:, :, None]}
        replies[k] = Reply(tensors, len(y), len(y))
    wanted = Wanted.of(
        torch.arange(3),
        head["head.weight"],
        head["head.bias"],
        *(owner_mean(part, replies) for part in ("weight", "bias")),
    )
    features = torch.tensor(found["features"], requires_grad=True)
    loss = mismatch(features, wanted)
    near(loss.detach(), found["mismatch"])
    near(torch.autograd.grad(loss, features)[0], found["gradient"])


def test_fedspray_is_its_authors() -> None:
    """Preset ``authors_values``, two rounds: the private networks, the MLP and the class proxies."""
    found = numbers("fedspray")
    method, model = FedSpray(**FedSpray.presets["authors_values"]), Backbone("sage", hidden=5, dropout=0.5)
    start = {**tensors(found["mlp"]), "proxy.class": 0.01 * torch.arange(3)[:, None].repeat(1, 5)}
    states = [tensors(found["network"]) for _ in found["clients"]]
    for number, held, _ in federation(method, found["clients"], model, start, states):
        near(held["proxy.class"], found["proxies"][number - 1])
        if number == 2:
            break
    for name, value in found["trained_mlp"].items():
        near(with_prefix(held, "mlp.")[name], value)
    for state, theirs in zip(states, found["trained_networks"], strict=True):
        for name, value in theirs.items():
            near(state[name], value)


def test_graphfedmig_is_its_authors_but_for_one_term() -> None:
    """The gradient of the local loss in the logits.

    The program's MI' term adds -1e-7 log2(e) / (t C) to every training logit. Ours leaves it out: it moves
    all logits alike, and softmax does not see that. The second softmax over p̄ and the constant have no
    gradient.
    """
    found = numbers("graphfedmig")
    logits, t = torch.tensor(found["logits"], dtype=torch.float64, requires_grad=True), found["train"]
    own, labels = logits[:t], torch.tensor(found["labels"])[:t]
    judgement = torch.tensor(found["judgement"], dtype=torch.float64)
    loss = F.cross_entropy(own, labels) + 1e-4 * divergence(own.mean(0), judgement)
    ours = torch.autograd.grad(loss, logits)[0]
    theirs = torch.tensor(found["gradient"], dtype=torch.float64)
    left_out = torch.zeros_like(theirs)
    left_out[:t] = -1e-7 * np.log2(np.e) / (t * 3)
    assert float((ours + left_out - theirs).abs().max()) < 1e-11
    of_divergence = ours - torch.autograd.grad(F.cross_entropy(logits[:t], labels), logits)[0]
    assert float(of_divergence.abs().max()) > 1e-7  # so that the line above would notice another divergence


def test_tail_gnn_is_its_authors() -> None:
    """What is missing, a layer of sage for tail and for head nodes (weight 1), and the judge's loss."""
    found = numbers("tailgnn")
    x, model = torch.tensor(found["x"]), Backbone("sage", hidden=4, dropout=0.0)
    params = tensors({f"translate1.{name}": value for name, value in found["translate1"].items()})
    adj = adjacency(torch.tensor(found["edges"]), len(x))
    means = torch.from_numpy(neighbour_mean(adj).toarray()).to(torch.float32) @ x
    near(missing(params, "translate1", x, means), found["missing"])
    for mode in ("tail", "head"):
        who = torch.full((len(x),), mode == "tail")
        view = View.of(model, torch.arange(len(x)), adj, np.diff(adj.indptr).astype(np.int64), who)
        near(view.convolved(params, "translate1", x), found[mode])
    judge = Judge(make_client(TailGNN(), client_data(numbers("openfgl")["clients"][0]), model), {}, {})
    of = tensors({f"judge.{name}": value for name, value in found["judge"].items()})
    verdict = judge.of(of, torch.tensor(found["logits"]))
    near(torch.sigmoid(verdict), found["judged"])
    loss = (F.softplus(-verdict[:2]).mean() + F.softplus(verdict[2:]).mean()) / 2
    near(loss, found["judge loss"])


def test_fed_grabs_controllers() -> None:
    """Four steps of one against all, class 2 absent. Theirs has no bound, so ours has none that is met."""
    found = numbers("fedgrab")
    labels = torch.tensor(found["labels"])
    true = F.one_hot(labels, 3).float()
    method = FedGraB(control="all", most=1e6)
    balancer = Balancer(method, torch.ones(3, dtype=torch.bool), 3)
    for step in found["steps"]:
        loss, grad = plain_error("bce", torch.tensor(step["logits"]), labels, true)
        assert loss == pytest.approx(step["loss"], rel=1e-5)
        near(balancer.balanced(grad, true), step["gradient"])
        near(balancer.known["up"], step["up"])
        near(balancer.known["down"], step["down"])


def test_s2fgls_agreement_and_important_nodes() -> None:
    """At temperature 2. The important nodes are the same, though theirs inverts a matrix."""
    found = numbers("s2fgl")
    local = torch.tensor(found["local"]).requires_grad_()
    agree = Agreement.with_model(torch.tensor(found["global"]), torch.tensor(found["table"]), None, 2.0)
    loss = agree.penalty(local)
    assert float(loss.detach()) == pytest.approx(found["loss"], rel=1e-4)
    near(torch.autograd.grad(loss, local)[0], found["gradient"])
    train = np.array(found["train"])
    score = importance(adjacency(torch.tensor(found["edges"]), 9), train)
    assert set(train.nonzero()[0][np.argsort(-score)][:3].tolist()) == set(found["important"])
