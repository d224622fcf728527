"""What a bank has already: scikit-learn's classifiers of a table's rows. No graph, no federation.

Down: nothing.  Up: nothing.  Bytes: 0.

A round is a candidate: round r fits the r-th setting of a grid, so that the setting is selected as every
other method's round is, by validation. Both know ``--scope alone`` and ``--scope pooled`` only. They need the
extra ``fedepd[baselines]``, and are no methods of ``fedepd.METHODS``.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedepd.errors import BadConfig
from fedepd.methods.alone import Silent
from fedepd.methods.base import Client
from fedepd.methods.steps import reply
from fedepd.network.backbones import Backbone
from fedepd.network.sparse import to_scipy
from fedepd.types import ClientData, Reply, Tensors

Probabilities = NDArray[np.float64]
STRENGTHS = (0.001, 0.01, 0.1, 1.0, 10.0)
"""Of logistic regression, scikit-learn's C: round r has the r-th."""
STEPS = (10, 25, 50, 100)
"""Of boosting, how many trees per class: round r has the r-th."""
MOST_TREES = 4000
"""Trees of all classes together.

Choice: with many classes there are fewer of each. 100 trees of each of 70 classes would take longer than the
method that they are held against.
"""
WIDE = 512
"""Columns that boosting reads as they are. It knows no sparse features."""
REDUCED = 64
"""Choice: of wider sparse features boosting reads so many components (TruncatedSVD of the training rows)."""
EMPTY, LEAST = -100.0, 1e-30
"""The logit of a class that was not fitted, and the smallest probability of one that was."""


class RowMethod(Silent[Any]):
    """What both share: a client fits its own training rows, and keeps what is said of all its nodes."""

    weighs_edges: ClassVar[bool] = True  # there is none that it would pass over: no edge is read
    candidates: ClassVar[int]
    """How many rounds have a setting of their own."""

    @abstractmethod
    def probabilities(self, client: Client[Any], round: int) -> Mapping[int, Probabilities]:
        """What the classifier says of all nodes, by the setting of this round, and of others that it gives.

        Returns:
            By round, probabilities [n, k] of the k classes that have training nodes, two or more.
        """

    def prepare(self, data: ClientData, model: Backbone) -> Any:
        """The features of all nodes."""
        needed()
        return to_scipy(data.graph.x) if data.graph.is_sparse else data.graph.x.numpy()

    def client_step(self, client: Client[Any], message: Tensors, state: Tensors) -> tuple[Reply, Tensors]:
        name = _candidate(min(client.round, self.candidates))
        if name not in state:
            state = self._fitted(client, min(client.round, self.candidates))
        later = {key: value for key, value in state.items() if key.startswith(_candidate("")) and key >= name}
        return reply(client, {}), {**later, "logits": state[name]}

    def _fitted(self, client: Client[Any], round: int) -> Tensors:
        """Logits [n, C] by candidate.

        A single class is said of every node. Without training nodes all classes are alike.
        """
        known = np.unique(training_rows(client)[1])
        shape = (client.data.graph.num_nodes, client.info.num_classes)
        if known.size < 2:
            said = {round: np.zeros((shape[0], known.size))}
        else:
            found = self.probabilities(client, round)
            said = {place: np.log(np.clip(each, LEAST, None)) for place, each in found.items()}
        out = {}
        for place, logarithms in said.items():
            logits = np.full(shape, EMPTY, dtype=np.float32)
            logits[:, known] = logarithms
            out[_candidate(place)] = torch.from_numpy(logits)
        return out

    def predict(self, client: Client[Any], tensors: Tensors) -> Tensor:
        nodes = client.data.graph.num_nodes
        logits = tensors.get("logits", torch.zeros(nodes, client.info.num_classes))
        if len(logits) != nodes:
            raise BadConfig(
                f"a run of {self.label} keeps what it says of its own nodes, and no model for new ones; "
                "use its scores only"
            )
        return logits


@final
@dataclass(frozen=True)
class Logistic(RowMethod):
    """Logistic regression with balanced classes, on scaled columns. Sparse features stay sparse."""

    label: ClassVar[str] = "Logistic regression"
    candidates: ClassVar[int] = len(STRENGTHS)

    def probabilities(self, client: Client[Any], round: int) -> Mapping[int, Probabilities]:
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        # Choice: 300 steps of lbfgs at most. What has not converged by then is a candidate as good as any.
        model = make_pipeline(
            StandardScaler(with_mean=not client.data.graph.is_sparse),
            LogisticRegression(C=STRENGTHS[round - 1], class_weight="balanced", max_iter=300),
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(*training_rows(client))
        return {round: model.predict_proba(client.prepared)}


@final
@dataclass(frozen=True)
class Boosting(RowMethod):
    """Histogram gradient boosting with balanced classes. One fit has all candidates."""

    label: ClassVar[str] = "Gradient boosting"
    candidates: ClassVar[int] = len(STEPS)

    def probabilities(self, client: Client[Any], round: int) -> Mapping[int, Probabilities]:
        from sklearn.ensemble import HistGradientBoostingClassifier
        from threadpoolctl import threadpool_limits

        client = replace(client, prepared=narrowed(client))
        most = max(STEPS[0], min(STEPS[-1], MOST_TREES // client.info.num_classes))
        # Choice: no early stopping, which would take nodes away from training. Validation selects the round.
        model = HistGradientBoostingClassifier(
            max_iter=most, class_weight="balanced", early_stopping=False, random_state=client.seed
        )
        with threadpool_limits(1):  # sums over threads would change the last bits
            model.fit(*training_rows(client))
            stages = {
                n: p for n, p in enumerate(model.staged_predict_proba(client.prepared), 1) if n in STEPS
            }
            last = model.predict_proba(client.prepared)
        return {place: stages.get(steps, last) for place, steps in enumerate(STEPS, 1) if place >= round}


def training_rows(client: Client[Any]) -> tuple[Any, NDArray[np.int64]]:
    """The rows of the training nodes, and their classes."""
    train = client.data.train_mask.numpy()
    return client.prepared[train], client.data.graph.y.numpy()[train]


def narrowed(client: Client[Any]) -> NDArray[np.float32]:
    """Dense rows for boosting: as they are, or the main components where sparse features are wide."""
    x, data = client.prepared, client.data
    if not data.graph.is_sparse:
        return np.asarray(x)
    if x.shape[1] <= WIDE:
        return np.asarray(x.todense(), dtype=np.float32)
    from sklearn.decomposition import TruncatedSVD

    train = data.train_mask.numpy()
    wanted = min(REDUCED, int(train.sum()) - 1)
    if wanted < 1:
        return np.zeros((x.shape[0], 1), dtype=np.float32)
    reduction = TruncatedSVD(wanted, random_state=client.seed).fit(x[train])
    return np.asarray(reduction.transform(x), dtype=np.float32)


def _candidate(round: int | str) -> str:
    return f"candidate{round}"


def needed() -> None:
    """Refuse, if scikit-learn is not installed."""
    try:
        import sklearn  # noqa: F401
    except ImportError as cause:
        raise BadConfig(
            "logistic regression and gradient boosting are scikit-learn's, which is not installed; "
            "run pip install 'fedepd[baselines]'"
        ) from cause


BASELINES: dict[str, type[RowMethod]] = {"logistic": Logistic, "boosting": Boosting}
"""By the name that ``--against`` and run folders have."""
