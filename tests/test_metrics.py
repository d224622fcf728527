from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics as sklearn_metrics

from fedepd import metrics as module
from fedepd.errors import BadData
from fedepd.longtail import Tiers
from fedepd.metrics import (
    METRICS,
    by_average,
    class_accuracy,
    class_numbers,
    class_scores,
    client_mean,
    confusion_matrix,
    mean_with_interval,
    one_class,
    one_class_notice,
    pooled,
    scores,
    wilson,
)

CLASSES = 5
TIERS = Tiers(head=(0,), medium=(1, 2), tail=(3, 4))
predictions = st.lists(
    st.tuples(st.integers(0, CLASSES - 1), st.integers(0, CLASSES - 1)), min_size=1, max_size=60
)


def some_matrices(classes: int, clients: int = 200) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Each client lacks about half of the classes. The last client has no node at all."""
    draws = np.random.default_rng(classes)
    counts = draws.integers(0, 9, (clients, classes, classes)) * draws.integers(0, 2, (clients, classes, 1))
    counts[-1] = 0
    return counts


@pytest.mark.parametrize("classes", [2, 5, 12, 40])
def test_many_clients_at_once_have_the_bits_of_one_after_the_other(classes: int) -> None:
    """Each client's scores, written out as in the definition, one client after the other."""

    def mean(values: np.ndarray[Any, Any]) -> float:
        known = values[~np.isnan(values)]
        return float(known.sum() / len(known)) if len(known) else math.nan

    def ratio(top: np.ndarray[Any, Any], bottom: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        with np.errstate(all="ignore"):
            return np.where(bottom > 0, top / bottom, np.nan)

    tiers = Tiers((0,), tuple(range(1, classes)), ())
    matrices = some_matrices(classes)
    for own, told in zip(matrices, class_numbers(matrices, tiers)["by_client"], strict=True):
        right, support, predicted = own.diagonal(), own.sum(1), own.sum(0)
        recall, occurs = ratio(right, support), support > 0
        found = scores(own, tiers)
        assert found["bacc"] == mean(recall) or math.isnan(mean(recall))
        assert found["medium_acc"] == mean(recall[1:]) or math.isnan(mean(recall[1:]))
        assert found["macro_f1"] == mean(ratio(2 * right, (support + predicted) * occurs)) or not own.any()
        assert math.isnan(found["tail_acc"])
        precision = np.nan_to_num(ratio(right, predicted))[occurs]
        expected = {"nodes": own.sum(), "precision": mean(precision), "recall": mean(recall)}
        for name, value in expected.items():
            assert told[name] == (None if math.isnan(value) else value)
    each = [scores(own, tiers) for own in matrices]
    nodes = matrices.sum((1, 2))
    bacc = np.array([one["bacc"] for one, counted in zip(each, nodes, strict=True) if counted])
    assert client_mean(matrices, tiers)["bacc"] == (bacc * nodes[nodes > 0]).sum() / nodes.sum()


def test_scores_by_hand() -> None:
    """Rows are true classes.

    Class 0 has 4 nodes (3 right), class 1 has 2 (1 right), class 2 none but is predicted once, class 3 one
    (wrong).

    acc 4/7; recalls 3/4, 1/2, -, 0, - so bacc = 5/12.
    F1 = 2 tp / (support + predicted): class 0: 6 / (4 + 4), class 1: 2 / (2 + 2), class 3: 0.
    Mean over the three classes that occur: (3/4 + 1/2 + 0) / 3 = 5/12.
    Head {0} 3/4, medium {1, 2} 1/2, tail {3, 4} 0.
    """
    confusion = np.zeros((CLASSES, CLASSES), dtype=np.int64)
    confusion[0, 0], confusion[0, 1], confusion[1, 1], confusion[1, 2], confusion[3, 0] = 3, 1, 1, 1, 1
    expected = {
        "acc": 4 / 7,
        "bacc": 5 / 12,
        "macro_f1": 5 / 12,
        "head_acc": 3 / 4,
        "medium_acc": 1 / 2,
        "tail_acc": 0.0,
    }
    assert tuple(scores(confusion, TIERS)) == METRICS
    assert scores(confusion, TIERS) == pytest.approx(expected)
    assert scores(torch.from_numpy(confusion), TIERS) == scores(confusion, TIERS)
    np.testing.assert_array_equal(class_accuracy(confusion), [0.75, 0.5, np.nan, 0.0, np.nan])


@given(predictions)
def test_equal_to_scikit_learn(pairs: list[tuple[int, int]]) -> None:
    """Five classes and few nodes.

    Classes absent from y_true yet predicted, and classes never predicted, occur all the time.
    """
    true, predicted = np.array(pairs).T
    confusion = confusion_matrix(true, predicted, CLASSES)
    present = np.unique(true)
    np.testing.assert_array_equal(
        confusion, sklearn_metrics.confusion_matrix(true, predicted, labels=range(CLASSES))
    )
    ours = scores(confusion, TIERS)
    assert ours["acc"] == pytest.approx(sklearn_metrics.accuracy_score(true, predicted))
    recalls = sklearn_metrics.recall_score(true, predicted, labels=present, average=None, zero_division=0)
    assert ours["bacc"] == pytest.approx(recalls.mean())
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # scikit-learn warns of exactly the traps: classes only predicted, a single class
        assert ours["bacc"] == pytest.approx(sklearn_metrics.balanced_accuracy_score(true, predicted))
    assert ours["macro_f1"] == pytest.approx(
        sklearn_metrics.f1_score(true, predicted, labels=present, average="macro", zero_division=0)
    )
    np.testing.assert_allclose(class_accuracy(confusion)[present], recalls)


def test_a_class_only_predicted_is_no_term_of_the_macro_mean() -> None:
    """Class 0 twice, one taken for class 1.

    F1 of class 0 is 2 / (2 + 1); scikit-learn without labels would halve it.
    """
    confusion = confusion_matrix(np.array([0, 0]), np.array([0, 1]), 2)
    assert scores(confusion, Tiers((0,), (), (1,)))["macro_f1"] == pytest.approx(2 / 3)
    assert sklearn_metrics.f1_score([0, 0], [0, 1], average="macro") == pytest.approx(1 / 3)


def test_nothing_to_score_is_nan_without_a_warning() -> None:
    """pytest turns any numpy warning into a failure."""
    empty = np.zeros((2, CLASSES, CLASSES), dtype=np.int64)
    for result in (
        scores(empty[0], TIERS),
        pooled(empty, TIERS),
        client_mean(empty, TIERS),
        client_mean(empty[:0], TIERS),
    ):
        assert all(math.isnan(v) for v in result.values())
    assert confusion_matrix(np.array([], dtype=int), np.array([], dtype=int), 3).tolist() == [[0] * 3] * 3


def test_pooled_and_client_mean_by_hand() -> None:
    """Four clients, one without nodes.

    A: 3 nodes of class 0, all right. B: 1 of class 0, wrong (as 3). C: no nodes. D: 4 of class 3, 2 right
    (else 0).

    Pooled acc (3 + 2) / 8, recalls 3/4 and 1/2.
    Mean by nodes: acc (3*1 + 1*0 + 4*0.5) / 8 = 5/8.
    Head only at A and B: 3/4; tail only at D: 1/2; medium nowhere.
    Own macro-F1 per client: A 1; B 0; D 2*2 / (4 + 2) = 2/3: (3 + 0 + 8/3) / 8.
    """
    confusions = np.zeros((4, CLASSES, CLASSES), dtype=np.int64)
    confusions[0, 0, 0], confusions[1, 0, 3], confusions[3, 3, 3], confusions[3, 3, 0] = 3, 1, 2, 2
    together = pooled(confusions, TIERS)
    assert (together["acc"], together["bacc"], together["head_acc"]) == pytest.approx((5 / 8, 5 / 8, 3 / 4))
    mean = client_mean(confusions, TIERS)
    assert math.isnan(mean.pop("medium_acc"))
    assert mean == pytest.approx(
        {"acc": 5 / 8, "bacc": 5 / 8, "macro_f1": 17 / 24, "head_acc": 3 / 4, "tail_acc": 1 / 2}
    )


@given(predictions)
def test_one_client_is_its_own_pool_and_mean(pairs: list[tuple[int, int]]) -> None:
    true, predicted = np.array(pairs).T
    one = confusion_matrix(true, predicted, CLASSES)[None]
    assert pooled(one, TIERS) == pytest.approx(client_mean(one, TIERS), nan_ok=True)


def test_wilson_by_hand() -> None:
    """5 of 10, z = 2: centre (0.5 + 0.2) / 1.4 = 0.5.

    Half = sqrt(0.25 * 0.4 + 0.04) / 1.4 = 0.374166 / 1.4 = 0.267261.
    0 of 4, z = 2: centre = half = 0.5 / 2 = 0.25, so the interval is 0..0.5.
    No trials: NaN.
    """
    low, high = wilson(np.array([5, 0, 4, 0]), np.array([10, 4, 4, 0]), z=2)
    np.testing.assert_allclose(low, [0.232739, 0, 0.5, np.nan], atol=1e-6)
    np.testing.assert_allclose(high, [0.767261, 0.5, 1, np.nan], atol=1e-6)


@given(st.integers(1, 200).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_ends_solve_the_score_equation(case: tuple[int, int]) -> None:
    """Its ends are the p at which (share - p)^2 = z^2 p (1 - p) / n."""
    k, n = case
    for p in wilson(torch.tensor([k]), torch.tensor([n])):
        assert 0 <= p[0] <= 1
        assert (k / n - p[0]) ** 2 == pytest.approx(1.96**2 * p[0] * (1 - p[0]) / n, abs=1e-12)


def test_bad_shapes_and_labels_are_refused() -> None:
    with pytest.raises(BadData, match=r"must be \[C, C\]"):
        scores(np.zeros((2, 3), dtype=np.int64), TIERS)
    with pytest.raises(BadData, match=r"must be \[K, C, C\]"):
        pooled(np.zeros((5, 5), dtype=np.int64), TIERS)
    with pytest.raises(BadData, match="y_true holds classes outside"):
        confusion_matrix(np.array([0, -1]), np.array([0, 0]), 2)
    with pytest.raises(BadData, match="y_pred holds classes outside"):
        confusion_matrix(np.array([0, 1]), np.array([0, 2]), 2)
    with pytest.raises(BadData, match="one class per node in both"):
        confusion_matrix(np.array([0, 1]), np.array([0]), 2)


def test_a_client_may_count_for_a_share_of_its_nodes() -> None:
    """4 of 4 right beside 0 of 8, of which a quarter counts: 4 of 6."""
    both = np.array([[[4, 0], [0, 0]], [[0, 8], [0, 0]]])
    assert pooled(both, Tiers((0,), (), (1,)), [1.0, 0.25])["acc"] == pytest.approx(4 / 6)
    assert pooled(both, Tiers((0,), (), (1,)), [1.0, 1.0]) == pytest.approx(
        pooled(both, Tiers((0,), (), (1,))), nan_ok=True
    )


@given(predictions)
def test_precision_recall_and_f1_of_a_class_are_scikit_learns(pairs: list[tuple[int, int]]) -> None:
    true, predicted = map(np.array, zip(*pairs, strict=True))
    found = class_scores(confusion_matrix(true, predicted, CLASSES))
    theirs = sklearn_metrics.precision_recall_fscore_support(
        true, predicted, labels=range(CLASSES), zero_division=np.nan
    )
    for name, values in zip(("precision", "recall"), theirs[:2], strict=True):
        np.testing.assert_allclose(found[name][0], values)
    occurs = np.isin(np.arange(CLASSES), true)
    np.testing.assert_allclose(found["f1"][0][occurs], np.nan_to_num(theirs[2])[occurs])
    assert np.isnan(found["f1"][0][~occurs]).all()
    for value, low, high in found.values():
        known = ~np.isnan(value)
        assert (low[known] <= value[known] + 1e-12).all()
        assert (value[known] <= high[known] + 1e-12).all()


def test_the_interval_of_f1_by_hand() -> None:
    """Class 0: 8 right, 2 missed, 6 false: F* = 8 / 16, F1 = 2/3. Wilson's interval of 8 in 16 is
    (0.5 ± 0.2452...) with z² / n = 0.2401: centre 0.5, half = sqrt(0.25 · 0.2401 + 0.2401² / 4) / 1.2401 =
    0.21999. So F* is in 0.28001..0.71999 and F1 in 2 · 0.28001 / 1.28001 = 0.43751 .. 0.83720."""
    found = class_scores(np.array([[8, 2], [6, 0]]))["f1"]
    assert [float(part[0]) for part in found] == pytest.approx([2 / 3, 0.43751, 0.83720], abs=2e-5)


def test_intervals_of_several_seeds_are_those_of_an_average_one() -> None:
    counts = np.array([[8, 2], [6, 4]])
    for name, values in class_scores(3 * counts, seeds=3).items():
        np.testing.assert_allclose(values, class_scores(counts)[name])


def test_a_mean_of_one_class_has_its_interval_and_of_two_a_narrower_one() -> None:
    values = (np.array([0.5, 0.5, np.nan]), np.array([0.3, 0.3, np.nan]), np.array([0.7, 0.7, np.nan]))
    assert mean_with_interval(values, [0, 2]) == pytest.approx((0.5, 0.3, 0.7))
    half = 0.2 / math.sqrt(2)
    assert mean_with_interval(values, [0, 1]) == pytest.approx((0.5, 0.5 - half, 0.5 + half))
    assert all(map(math.isnan, mean_with_interval(values, [2])))


def test_numbers_by_class_tier_and_client() -> None:
    """Client 0 never says class 1, of which it has one node: its precision counts as 0 there.

    Precision there (3/4 + 0) / 2, recall (3/3 + 0) / 2, F1 (6/7 + 0) / 2. Client 1 has no node at all.
    """
    empty = np.zeros((CLASSES, CLASSES), dtype=np.int64)
    one = empty.copy()
    one[0, 0], one[1, 0] = 3, 1
    found = class_numbers(np.stack([one, empty]), TIERS)
    assert found["by_client"] == [
        {"client": 0, "nodes": 4, "precision": 3 / 8, "recall": 1 / 2, "f1": pytest.approx(3 / 7)},
        {"client": 1, "nodes": 0, "precision": None, "recall": None, "f1": None},
    ]
    first, second, third = found["by_class"][:3]
    assert (first["nodes"], first["predicted"], first["precision"][0]) == (3, 4, 3 / 4)
    assert (second["precision"], second["recall"][0]) == (None, 0.0)
    assert third == {"class": 2, "nodes": 0, "predicted": 0, "precision": None, "recall": None, "f1": None}
    assert found["by_tier"]["head"]["recall"] == first["recall"]
    assert found["by_tier"]["tail"] == {"precision": None, "recall": None, "f1": None}
    assert class_numbers(one[None], TIERS, by_client=False)["by_client"] == []


def test_a_model_that_says_one_class_is_called_that() -> None:
    names = ["clean", "mule", "take\x1bover"]
    everything = np.array([[950, 0, 0], [40, 0, 0], [10, 0, 0]])
    assert one_class(everything) == 0
    (said,) = one_class_notice(everything, names)
    assert said == "the model says 'clean' for every test node; its accuracy is the share of that class"
    nearly = np.array([[949, 1, 0], [38, 2, 0], [10, 0, 0]])  # 2 of 40 mules: 5 %
    (said,) = one_class_notice(nearly, names)
    assert "'clean' for 99.70 % of the test nodes and finds at most 5.0 % of any other class" in said
    third = np.array([[950, 0, 0], [37, 3, 0], [10, 0, 0]])  # 7.5 % are more
    assert one_class(third) is None
    assert one_class_notice(third, names) == []
    assert "'2'" in one_class_notice(everything[::-1, ::-1])[0]
    assert "take?over" in one_class_notice(everything[::-1, ::-1], names)[0]


@pytest.mark.parametrize("matrix", [np.zeros((3, 3), dtype=np.int64), np.diag([5, 0, 0])])
def test_nothing_is_said_where_nothing_or_one_class_was_tested(matrix: np.ndarray) -> None:
    assert one_class(matrix) is None


@given(rows=st.integers(1, 6), columns=st.integers(1, 40), seed=st.integers(0, 99))
def test_means_have_the_same_bits_one_by_one_and_together(rows: int, columns: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = np.where(rng.random((rows, columns)) < 0.7, rng.random((rows, columns)), np.nan)
    alone = module._means(values)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "FEW_ROWS", 0)
        together = module._means(values)
    assert np.array_equal(alone, together, equal_nan=True)
    assert np.array_equal(np.isnan(alone), np.isnan(values).all(1))


def test_averages_of_several_arrays_have_the_bits_of_each_alone() -> None:
    """Clients without nodes, without a tier, and more rows than are taken one by one."""
    draws = np.random.default_rng(5)
    tiers = Tiers((0,), (1, 2), (3,))
    arrays = [draws.integers(0, 4, (clients, 4, 4)) for clients in (1, 3, 40)]
    arrays[1][0] = 0
    arrays[2][:, 3] = 0
    for each, found in zip(arrays, by_average(arrays, tiers), strict=True):
        alone = {"pooled": pooled(each, tiers), "client_mean": client_mean(each, tiers)}
        assert repr(found) == repr(alone)
