"""Filters an owner may switch on in the kit's ``local/privacy.json``; they run at the site, whatever a job says, and fail closed."""

from __future__ import annotations

from typing import Any

import numpy as np
from nvflare.apis.filter import Filter
from nvflare.apis.shareable import Shareable

from fedepd.deploy.wire import Refused, record_kind

COUNT = ".count"
PRESENCE = ("gradient.present", "owned")
"""Fields of CReFF and LWS that say which classes a site has, but not of how many nodes."""


class MinCount(Filter):  # type: ignore[misc]
    """Hide every class of which the site would expose fewer than ``k`` nodes: its row in ``X.count`` and in all ``X.*`` becomes zero.

    Confusion matrices lose the rows of classes with fewer than ``k`` nodes, declared class sizes such classes. What names classes
    in another way cannot be hidden and is refused, as is any other record.
    """

    def __init__(self, k: int = 10) -> None:
        super().__init__()
        self.k = k

    def process(self, shareable: Shareable, fl_ctx: Any) -> Shareable:
        if shareable.get_return_code() != "OK":
            return shareable
        kind = record_kind(shareable)
        if kind == "class_sizes":
            for name, sizes in shareable[kind].items():
                shareable[kind][name] = np.where(sizes < self.k, 0, sizes)
            return shareable
        if kind == "confusions":
            for name, matrix in shareable["confusions"].items():
                shareable["confusions"][name] = np.where(matrix.sum(1, keepdims=True) < self.k, 0, matrix)
            return shareable
        tensors = shareable["tensors"]
        for name in PRESENCE:
            if name in tensors:
                raise Refused(name, "says which classes are here, which MinCount cannot hide")
        for name in [name for name in tensors if name.endswith(COUNT)]:
            few = tensors[name] < self.k  # [C]
            for other in [other for other in tensors if other.startswith(name.removesuffix("count"))]:
                rows = few.reshape(-1, *[1] * (tensors[other].ndim - 1))
                if tensors[other].shape[:1] != few.shape:
                    raise Refused(other, f"has no row for each of the {few.size} classes of {name}")
                tensors[other] = np.where(rows, np.float32(0), tensors[other])
        return shareable
