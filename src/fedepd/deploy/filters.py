"""Filters that an owner can switch on in the kit's ``local/privacy.json``.

They run at the site, and a job cannot switch them off. If a filter fails, nothing is sent.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from nvflare.apis.filter import Filter
from nvflare.apis.shareable import Shareable

from fedepd.deploy.wire import Refused, record_kind
from fedepd.errors import BadConfig
from fedepd.shown import shown

COUNT = ".count"
PRESENCE = ("gradient.present", "owned")
"""Fields of CReFF and LWS that say which classes a site has, but not how many nodes each has."""


class MinCount(Filter):  # type: ignore[misc]
    """Send zeros in place of counts below ``k``. This hides class sizes, but not which classes a site has.

    What becomes zero:

    - the row of a class in ``X.count`` and in all ``X.*``, where ``X.count`` is below ``k``;
    - the row of a class with fewer than ``k`` held-out nodes in a confusion matrix;
    - every entry below ``k`` in the class sizes of a declaration.

    What stays visible:

    - which classes the site has: with every method that sends a model, the sign of a class's entry in
      ``classifier.bias`` tells;
    - how many nodes the hidden classes have together, because ``num_nodes``, ``num_train`` and ``loss`` pass
      unchanged;
    - every tensor without a ``.count`` beside it (the model, FedGTA's moments, GraphFedMig's class means).

    So the filter protects exact counts and prototypes of few nodes. It does not hide rare classes from the
    server.

    What is refused: the fields in ``PRESENCE`` (CReFF, LWS), which name classes in another way, masked
    vectors, which nobody can look into, and any unknown record.
    """

    def __init__(self, k: int = 10) -> None:
        super().__init__()
        if isinstance(k, bool) or not isinstance(k, int) or k < 1:
            raise BadConfig(
                f"k of MinCount is {shown(k)}; give a whole number, 1 or more, in local/privacy.json"
            )
        self.k = k

    def process(self, shareable: Shareable, fl_ctx: Any) -> Shareable:
        if shareable.get_return_code() != "OK":
            return shareable
        kind = record_kind(shareable)
        if kind == "parts":
            raise Refused(kind, "are masked, so that MinCount cannot look at them; use the guard instead")
        if kind == "class_sizes":
            shareable[kind] = {name: self._hidden(name, sizes) for name, sizes in shareable[kind].items()}
            return shareable
        if kind == "confusions":
            for name, matrix in shareable["confusions"].items():
                shareable["confusions"][name] = np.where(matrix.sum(1, keepdims=True) < self.k, 0, matrix)
            return shareable
        tensors = shareable["tensors"]
        for name in PRESENCE:
            if name in tensors:
                raise Refused(name, "says which classes this site has, which MinCount cannot hide")
        for name in [name for name in tensors if name.endswith(COUNT)]:
            few = tensors[name] < self.k  # [C]
            for other in [other for other in tensors if other.startswith(name.removesuffix("count"))]:
                rows = few.reshape(-1, *[1] * (tensors[other].ndim - 1))
                if tensors[other].shape[:1] != few.shape:
                    raise Refused(other, f"has no row for each of the {few.size} classes of {name}")
                tensors[other] = np.where(rows, np.float32(0), tensors[other])
        return shareable

    def _hidden(self, name: str, sizes: NDArray[Any]) -> NDArray[Any]:
        """The declared class sizes of one split, with zeros for small classes."""
        if sizes.dtype != np.int64 or sizes.ndim != 1:
            raise Refused(name, f"is {sizes.dtype} {list(sizes.shape)}, not a count for each class")
        return np.where(sizes < self.k, 0, sizes)
