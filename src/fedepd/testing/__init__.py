"""Anybody's method, dataset, partition or backbone -> checks that name what is wrong. Needs no pytest."""

from __future__ import annotations

from fedepd.testing.checks import Check, CheckFailed
from fedepd.testing.methods import check_method, method_checks
from fedepd.testing.others import check_backbone, check_dataset, check_partition

__all__ = ["Check", "CheckFailed", "check_backbone", "check_dataset", "check_method", "check_partition"]
__all__ += ["method_checks"]
