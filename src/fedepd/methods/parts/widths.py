"""The setting ``widths``: private networks of different widths, whose prototypes have one width.

Choice: prototypes have the run's hidden width. A dense layer of this width stands between a client's own
layers and its classifier, as in FedProto's program (50 units behind 18, 20 or 22 channels). FedTGP's program
pools features to the common width instead, without weights. Its features have far more columns than that, and
ours may have fewer. OpenFGL's clients have different networks of one width.

Choice: clients of one width start from the same weights, and those of another width from others. There are no
weights that two widths could have in common.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TypeVar

from fedepd.errors import BadConfig
from fedepd.methods.base import Client
from fedepd.network.backbones import Backbone
from fedepd.network.own_width import COMMON, OwnWidth
from fedepd.shown import shown
from fedepd.types import Tensors

EQUAL = "equal"
"""All clients have the run's hidden width, and no layer more."""
HELP = (
    "hidden widths of the clients' own layers, dealt in turn, such as 16-32-64; prototypes keep the run's "
    "width; equal: all clients have it"
)
WIDTHS = re.compile(r"[1-9][0-9]{0,4}(-[1-9][0-9]{0,4}){0,99}", re.ASCII)

P = TypeVar("P")


def own_widths(widths: str) -> tuple[int, ...]:
    """The numbers that the setting holds; none where all widths are equal."""
    if widths == EQUAL:
        return ()
    if not WIDTHS.fullmatch(widths):
        raise BadConfig(
            f"widths is '{shown(widths)}'; give whole numbers from 1 to 99999, at most 100, with - between "
            f"them, such as 16-32-64, or {EQUAL}"
        )
    return tuple(map(int, widths.split("-")))


def check_widths(widths: str, model: Backbone) -> None:
    """Refuse widths that the run's network cannot have."""
    for width in own_widths(widths):
        try:
            _ = OwnWidth.of(model, width).inner
        except BadConfig as cause:
            raise BadConfig(f"widths holds {width}, which does not fit: {cause}") from cause


def own_network(widths: str, model: Backbone, client_id: int, tensors: Tensors) -> Backbone:
    """A client's network. Its own model, where it has one, says how wide it is."""
    known = own_widths(widths)
    if not known:
        return model
    weight = tensors.get(f"{COMMON}.weight")
    if weight is None:
        return OwnWidth.of(model, known[client_id % len(known)])
    if weight.ndim != 2 or weight.shape[0] not in known:
        raise BadConfig(
            f"a client's own model has '{COMMON}.weight' of shape {list(weight.shape)}, which does not fit "
            f"widths = {widths}; it is a model of other settings"
        )
    return OwnWidth.of(model, weight.shape[0])


def with_own_network(widths: str, client: Client[P], tensors: Tensors) -> Client[P]:
    """The client with its own network instead of the run's."""
    return replace(client, model=own_network(widths, client.model, client.data.client_id, tensors))
