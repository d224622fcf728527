"""Rehearsal: its loss and gradient beside another loss, and that adaptation has it."""

from __future__ import annotations

import torch

from fedepd.methods import make_method
from fedepd.methods.fedepd.rehearsal import Rehearsal
from fedepd.network.backbones import Backbone
from fedepd.network.training import Gradient
from fedepd.types import Tensors
from toy import make_client, toy_client

COUNT = torch.tensor([4.0, 0.0, 1.0])
MEAN = torch.tensor([[1.0, 0.0], [9.0, 9.0], [0.0, 2.0]])
TENSORS = {"prototype.mean": MEAN, "prototype.count": COUNT}


def test_only_classes_that_somebody_has_are_rehearsed() -> None:
    """Class 1 has no node. The tilt is -prior log(count), with log 1 = 0 for count 0 too."""
    found = Rehearsal.of(TENSORS, 0.5)
    assert found.classes.tolist() == [0, 2]
    assert found.rows.tolist() == [[1.0, 0.0], [0.0, 2.0]]
    torch.testing.assert_close(found.tilt, torch.tensor([-0.5 * 1.3862943611, 0.0, 0.0]))


def test_loss_and_gradient_are_the_sums_of_both() -> None:
    """Beside a loss of sum(W) + sum(b), whose gradients are ones: autograd finds the same."""
    params = {"classifier.weight": torch.randn(2, 3, generator=torch.Generator().manual_seed(0))}
    params["classifier.bias"] = torch.tensor([0.1, -0.2, 0.3])

    def base(values: Tensors) -> tuple[float, Tensors]:
        total = float(sum(value.sum() for value in values.values()))
        return total, {name: torch.ones_like(value) for name, value in values.items()}

    loss, grads = Rehearsal.of(TENSORS, 0.5).beside(Gradient(base), Backbone()).of(params)
    leaves = {name: value.clone().requires_grad_() for name, value in params.items()}
    logits = MEAN[[0, 2]] @ leaves["classifier.weight"] + leaves["classifier.bias"]
    shifted = logits - 0.5 * torch.log(COUNT.clamp(min=1))
    whole = torch.nn.functional.cross_entropy(shifted, torch.tensor([0, 2]))
    whole = whole + sum(value.sum() for value in leaves.values())
    whole.backward()  # type: ignore[no-untyped-call]
    assert abs(loss - float(whole.detach())) < 1e-5
    for name, leaf in leaves.items():
        torch.testing.assert_close(grads[name], leaf.grad)


def test_adaptation_rehearses_where_the_rounds_do() -> None:
    """With a prototype far away, only the method that rehearses has another loss than without prototypes."""
    losses = {}
    for preset in ("default", "printed"):
        method = make_method("fedepd", preset)
        client = make_client(method, toy_client(0))
        info, model = client.info, client.model
        params = model.initial(info, 0)
        for count in (0.0, 1.0):
            tensors = {
                **params,
                "prototype.mean": torch.full((info.num_classes, model.width), 50.0),
                "prototype.count": torch.full((info.num_classes,), count),
                "pruning.votes": torch.tensor([1.0, 0.0]),
            }
            found = method.adaptation(client, tensors)
            assert found is not None
            losses[preset, count] = found[1].of(params)[0]  # type: ignore[union-attr]
    assert losses["default", 1.0] != losses["default", 0.0]
    assert losses["printed", 1.0] == losses["printed", 0.0]
