"""Noise on the sums of updates, so that no client can be recognised in them: an experiment.

What leaves a client in a round is one vector of whole numbers (``sums.layout``). Under noise it holds:

- the model as received, plus the client's update, shortened to the norm ``clip``, plus noise;
- constants: every client has weight 1, and says of its size no more than that it is one client;
- zeros for all else: class rows, counts, votes, loss.

Two federations are neighbours if one client's update is zero in one of them. Who takes part is public.
So the sums of neighbours differ by at most ``clip`` in norm.

**Whole numbers.** The low bits of noise in floating point give away what it was added to: Jin, McMurtry,
Rubinstein and Ohrimenko, arXiv 2112.05307. Here update and noise are multiples of one step, a power of two
of about 1/65,536 to 1/131,072 of the noise's deviation. An update is cut to steps towards zero, so that
rounding never makes it longer. Noise is a normal number rounded to steps. Rounding moves along with whole
steps: x + round(N) = round(x + N). So what one client adds is a rounded Gaussian mechanism, and rounding
gives nothing away. The sum over m clients is rounded m times and not once. But each rounding acts like an
independent uniform number of one step (up to exp(-(pi * 65,536)^2), by Poisson's summation formula). So the
sum is distributed like round(x + N + U), with N of the full variance and U a sum of m - 1 uniform numbers.
Hence the exact formula of ``budget`` holds as it is, for the Gaussian and not for a relative of it.

What is left is the precision of a drawn number, 2^-50 of its size. It moves both ends of a step, which is at
least 2^-17 wide, so that the chance of a step z deviations out is wrong by a share of at most z 2^-32. Over v
values, T rounds and m clients epsilon is wrong by at most about 2 v T m 2^-32, if all of these errors point
the same way: 0.005 on the built-in graph with 10 clients and 200 rounds.

**Shares.** Each client adds noise of variance (multiplier * clip)^2 / floor(2n / 3). A sum is finished by
more than that many clients (``privacy.secure_sum.threshold``). So the noise is enough if as many drop out as
may, and even for a client that takes its own share away. If nobody drops out, it is larger than needed: 1.29
times with 10 clients, 1.23 times with 100.
"""

from __future__ import annotations

import math
import os
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import ndtri

from fedepd.errors import BadConfig
from fedepd.methods.base import Method
from fedepd.rounds.budget import Budget
from fedepd.rounds.sums import FRACTION_BITS, WEIGHT, CannotSum, Layout, Vector, largest, layout, whole
from fedepd.types import Fields, Reply, Sizes, TaskInfo, Tensors

ONE = 2**FRACTION_BITS
"""The whole number that stands for 1."""
STEPS = 2**16
"""The noise's deviation has at least so many steps, unless a step is already the smallest there is."""
FEWEST_STEPS = 16
"""With fewer, rounded numbers are no longer like normal ones."""
SLACK = 1 - 2.0**-26
"""An update is made shorter by so much more than asked.

So errors of floating point cannot make it too long: a norm of v values is right to v * 2^-53, and no model
here has 2^27 values.
"""
CONSTANTS = ("num_nodes", "num_train", "clients")
"""Of what a vector says about a client, the parts that are 1 under noise. The loss is 0."""


def shares(clients: int) -> int:
    """How many clients' noise is enough, of ``clients`` in a round: one fewer than finish a secure sum."""
    return 2 * clients // 3


def deviation(budget: Budget, clients: int) -> float:
    """Of the noise that one client adds to each value, as a multiple of the smallest whole number."""
    return float(budget.multiplier * budget.clip * ONE / math.sqrt(shares(clients)))


def step_of(deviation: float) -> int:
    """What updates and noise are multiples of: a power of two."""
    return int(2 ** max(0, math.floor(math.log2(deviation / STEPS))))


def shortened(update: NDArray[np.float64], clip: float, step: int) -> Vector:
    """The update as whole numbers, multiples of ``step``, of a norm of at most ``clip``.

    An update with a number that is infinite or none becomes zero. A refusal would tell of it.
    """
    norm = float(np.linalg.norm(update))
    if not math.isfinite(norm):
        return np.zeros(update.shape, dtype=np.int64)
    kept = min(1.0, clip * SLACK / norm) if norm > 0 else 1.0
    cut: Vector = np.trunc(update * (kept * ONE / step)).astype(np.int64) * step
    return cut


def normal(count: int) -> NDArray[np.float64]:
    """Standard normal numbers from the operating system's randomness, never from the seed of a run.

    One bit is the sign, 63 are the chance of a number further out. So they reach to 9.2 deviations.
    """
    bits = np.frombuffer(os.urandom(8 * count), dtype=np.uint64)
    further = ((bits >> np.uint64(1)).astype(np.float64) + 0.5) * 2.0**-64  # in (0, 1/2]
    sign = 1.0 - 2.0 * (bits & np.uint64(1)).astype(np.float64)
    numbers: NDArray[np.float64] = sign * -ndtri(further)
    return numbers


def whole_noise(count: int, deviation: float, step: int) -> Vector:
    """Normal numbers of this deviation, rounded to multiples of ``step``."""
    rounded: Vector = np.rint(normal(count) * (deviation / step)).astype(np.int64) * step
    return rounded


def covered(fields: Fields, message: Tensors) -> list[str]:
    """The fields that are sent under noise: parameters that come back changed."""
    return sorted(name for name, field in fields.items() if field.kind == "real" and name in message)


def noisy_vector(
    method: Method[Any],
    info: TaskInfo,
    fields: Fields,
    reply: Reply,
    message: Tensors,
    budget: Budget,
    clients: int,
) -> Vector:
    """A client's vector under noise. ``clients``: how many take part in the round."""
    names = covered(fields, message)
    old = torch.cat([message[name].reshape(-1) for name in names]).to(torch.float64)
    new = torch.cat([reply.tensors[name].reshape(-1) for name in names]).to(torch.float64)
    spread = deviation(budget, clients)
    # What was received is public. Half of the range is for it, the other half for update and noise, which is
    # within 10 deviations.
    if 10 * spread + budget.clip * ONE > largest(2 * info.num_clients):
        raise CannotSum("has noise that is too large to be summed; lower dp_clip, or raise dp_epsilon")
    step = step_of(spread)
    change = shortened((new - old).numpy(), budget.clip, step) + whole_noise(len(old), spread, step)
    values = whole(old.numpy(), 2 * info.num_clients) + change
    return filled(layout(method, info, fields), fields, names, values)


def filled(parts: Layout, fields: Fields, names: list[str], values: Vector) -> Vector:
    """The whole vector: ``values`` are those of the fields ``names``, all else is constant."""
    ends = np.cumsum([math.prod(fields[name].shape) for name in names])
    known: dict[str, Vector] = dict(zip(names, np.split(values, ends[:-1]), strict=True))
    for name in names:
        known[name + WEIGHT] = np.array([ONE])
    known |= {name: np.array([ONE]) for name in CONSTANTS}
    return np.concatenate(
        [np.broadcast_to(known.get(name, np.array([0])), math.prod(shape)) for name, shape in parts]
    ).astype(np.int64)


def noisy_sizes(sizes: Sizes, shows_scores: bool) -> Sizes:
    """What a client declares under noise: that it is there.

    A simulation counts held-out nodes to measure what noise costs. A site does not send them.
    """
    none = torch.zeros_like(sizes.train)
    return Sizes(1, 1, none, sizes.val if shows_scores else none, sizes.test if shows_scores else none)


def check_noise(
    budget: Budget, method: Method[Any], fields: Fields, message: Tensors, clients: int, select: str
) -> None:
    """Refuse what noise does not cover.

    ``fields``: those of all stages of the method. ``clients``: how many take part in a round.
    """
    why = "dp_epsilon is given, but "
    if clients < 3:
        raise BadConfig(f"{why}{clients} clients take part in a round; it needs 3, better hundreds")
    if select != "last":
        raise BadConfig(
            f"{why}select is {select}, and validation scores of single rounds are not in the budget; "
            "give select = last"
        )
    if budget.delta * clients >= 1:
        raise BadConfig(
            f"dp_delta is {budget.delta:g} with {clients} clients in a round; with such a chance to fail, "
            f"one of them could be shown in full; give less than {1 / clients:g}"
        )
    left_out = sorted(fields.keys() - set(covered(fields, message)))
    if left_out and not method.works_without_rows:
        raise BadConfig(
            f"{why}{method.label} cannot do without {left_out[0]}, which is not sent under noise; choose "
            "fedavg, or another method whose clients send models only"
        )
    if not covered(fields, message):
        raise BadConfig(f"{why}the clients of {method.label} send no model; leave dp_epsilon out")
    if deviation(budget, clients) < FEWEST_STEPS:
        raise BadConfig(f"dp_clip is {budget.clip:g}, which is too little for whole numbers; give more")
