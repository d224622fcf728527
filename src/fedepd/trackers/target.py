"""Which tracker a user means, and whether it can be used."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path

from fedepd.errors import BadConfig
from fedepd.files import absolute
from fedepd.shown import plain, shown
from fedepd.trackers.contract import Tracker

LONGEST = 1000
"""Most characters of a target."""
PROJECT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
DATABASES = ("sqlite", "postgresql", "mysql", "mssql")
SERVERS = ("http", "https", "databricks")
HOW = "write it as tensorboard:DIR, mlflow:URI, wandb or wandb:PROJECT"


def tracker_of(target: str) -> Tracker:
    """The tracker that ``target`` names, or one sentence on what is wrong with it. Nothing is sent yet."""
    if not isinstance(target, str) or not target or len(target) > LONGEST or plain(target) != target:
        raise BadConfig(f"the tracker is '{shown(target)}'; {HOW}")
    kind, colon, place = target.partition(":")
    if kind not in KINDS:
        raise BadConfig(f"there is no tracker '{shown(kind)}'; {HOW}")
    if not place and (colon or kind != "wandb"):
        raise BadConfig(f"the tracker is '{shown(target)}' without a place; {HOW}")
    return KINDS[kind](place)


def _tensorboard(place: str) -> Tracker:
    folder = absolute(place)
    for each in (folder, *folder.parents):
        if each.exists():
            if not each.is_dir():
                raise BadConfig(f"'{shown(each, 300)}' is a file; give a folder, as tensorboard:DIR")
            break
    needed("torch.utils.tensorboard", "tensorboard")
    from fedepd.trackers.tensorboard import TensorBoard

    return TensorBoard(folder)


def _mlflow(place: str) -> Tracker:
    scheme = re.split(r"[+:]", place, maxsplit=1)[0]
    if "://" not in place or scheme not in (*DATABASES, *SERVERS):
        raise BadConfig(
            f"'{shown(without_password(place))}' is no address of MLflow; give a database, such as "
            "mlflow:sqlite:///m.db, or a server, such as mlflow:http://127.0.0.1:5000 (folders of files are "
            "no longer supported by MLflow)"
        )
    from fedepd.trackers.mlflow import PRIVATE, MLflow

    set_where_unset(PRIVATE)
    needed("mlflow", "mlflow")
    return MLflow(place)


def _wandb(place: str) -> Tracker:
    if place and not PROJECT.fullmatch(place):
        raise BadConfig(
            f"'{shown(place)}' is no name of a project; use letters, digits, '_', '-' and '.', "
            "at most 100 of them"
        )
    from fedepd.trackers.wandb import PRIVATE, WeightsAndBiases

    set_where_unset(PRIVATE)
    needed("wandb", "wandb")
    return WeightsAndBiases(place)


KINDS: dict[str, Callable[[str], Tracker]] = {
    "tensorboard": _tensorboard,
    "mlflow": _mlflow,
    "wandb": _wandb,
}


def set_where_unset(variables: Mapping[str, str]) -> None:
    """Variables of the environment that a package reads at its import. What a user has set stays."""
    for name, value in variables.items():
        os.environ.setdefault(name, value)


def needed(module: str, extra: str) -> None:
    """Import an optional package, or say in one sentence how to get it."""
    try:
        import_module(module)
    except ImportError as cause:
        raise BadConfig(
            f"the tracker {extra} needs a package that is not installed; "
            f"install it with: pip install 'fedepd[{extra}]'"
        ) from cause


def without_password(text: str) -> str:
    """An address in which no password can be read."""
    return re.sub(r"(://[^/\s:@]*):[^/\s@]*@", r"\1:***@", text)


def free_folder(parent: Path, name: str) -> Path:
    """A folder of this name that is not there yet: ``first``, then ``first-2``, ``first-3``."""
    tried, number = parent / name, 1
    while tried.exists():
        number += 1
        tried = parent / f"{name}-{number}"
    return tried
