"""Shares of training rows: of many rows each, and readable again."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import fedepd
from fedepd.errors import BadConfig, BadData
from fedepd.model.model import load_model
from fedepd.model.reference import (
    CLASSES,
    DEGREE,
    FEW,
    REFERENCE,
    Bins,
    categories_of,
    numbers_of,
    read_reference,
    reference_of,
)


def test_bins_of_numbers_have_equally_many_rows() -> None:
    """1000 numbers from 0 to 1 in tenths: the borders are 0.1, ..., 0.9 and every share is a tenth."""
    bins = numbers_of("a", np.linspace(0, 0.9999, 1000), FEW)
    assert bins.borders == pytest.approx(np.arange(1, 10) / 10, abs=0.002)
    assert bins.shares == pytest.approx([0.1] * 10, abs=0.002)
    assert bins.counts([0.05, 0.95, 2.0]).tolist() == [1, *[0] * 8, 2]
    assert len(bins.names()) == 10


def test_no_bin_stands_for_few_rows() -> None:
    """One row in a thousand is 1e6, and 30 are 5: the first cannot have a bin of its own."""
    values = np.array([0.0] * 969 + [5.0] * 30 + [1e6])
    bins = numbers_of("a", values, FEW, (1.0, 100.0, 1e5))
    assert bins.borders == (1.0,)
    assert bins.shares == (0.969, 0.031)
    for seed in range(20):
        draws = np.random.default_rng(seed)
        values = np.concatenate([draws.normal(0, 1, 90), draws.lognormal(0, 4, 30)])
        found = numbers_of("b", values, FEW)
        assert found.counts(values.tolist()).min() >= FEW
        assert sum(share or 0 for share in found.shares) == pytest.approx(1, abs=1e-3)
    assert numbers_of("c", np.ones(50), FEW).shares == (1.0,)
    assert numbers_of("c", np.ones(50), FEW).names() == ["all"]


def test_rare_categories_lose_their_names() -> None:
    """60 a, 30 b, 9 c, 1 missing. c and the missing one share a bin, and nobody learns its share."""
    bins = categories_of("kind", ["a"] * 60 + ["b"] * 30 + ["c"] * 9 + [""], FEW)
    assert bins.categories == ("a", "b")
    assert bins.shares == (0.6, 0.3, None)
    assert bins.counts(["a", "c", "zebra", ""]).tolist() == [1, 0, 3]
    named = categories_of(CLASSES, ["a"] * 95 + ["b"] * 5, FEW, ("a", "b", "c"))
    assert named.categories == ("a", "b", "c")
    assert named.shares == (0.95, None, None)  # 5 rows and none at all look alike


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("reference")
    fedepd.run("synthetic", "fedavg", rounds=2, clients=2, hidden=8, out=place / "run")
    return Path(fedepd.export(place / "run", place / "model"))


def test_an_exported_model_has_a_reference(folder: Path, tmp_path: Path) -> None:
    """64 features, degrees and classes; of the 60 % of nodes that train."""
    found = read_reference(folder)
    assert found is not None
    assert [each.name for each in found.columns[-2:]] == [DEGREE, CLASSES]
    assert len(found.columns) == 66
    assert 0.55 * 1500 < found.rows < 0.61 * 1500
    shares = [(share, each.rows) for each in found.columns for share in each.shares if share is not None]
    assert all(share * rows >= FEW - 0.1 for share, rows in shares)
    assert read_reference(tmp_path) is None
    graph = fedepd.load("synthetic")
    with pytest.raises(BadConfig, match="at least 20"):
        reference_of(load_model(folder), graph, np.arange(5))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda c: c | {"rows": 0}, "rows"),
        (lambda c: c | {"columns": c["columns"][:-1]}, "lacks degrees or classes"),
        (lambda c: c | {"columns": [c["columns"][0] | {"shares": [0.5]}, *c["columns"][1:]]}, "shares"),
        (lambda c: c | {"homophily": 7}, "homophily"),
    ],
)
def test_a_damaged_reference_is_one_sentence(folder: Path, tmp_path: Path, change, words: str) -> None:  # type: ignore[no-untyped-def]
    content = json.loads((folder / REFERENCE).read_text())
    (tmp_path / REFERENCE).write_text(json.dumps(change(content)))
    with pytest.raises(BadData, match=words):
        read_reference(tmp_path)


def test_names_of_bins_say_what_is_in_them() -> None:
    assert Bins("a", (1.0, 2.5), None, (0.3, 0.3, 0.4), 9).names() == ["below 1", "1 to 2.5", "from 2.5"]
