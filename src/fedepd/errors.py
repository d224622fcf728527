"""Errors that a user can cause or meet.

Every message is one sentence that names the thing, the place and the cure.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from fedepd.shown import LIMIT, listed, shown

MOST_CHOICES = 100
"""Most choices that a message lists. Our own longest list has 50 settings."""


class FedEPDError(Exception):
    """Base of all errors raised on purpose. The command line prints one as one sentence and exits with 2.

    Examples:
        >>> import fedepd
        >>> from fedepd.errors import FedEPDError
        >>> try:
        ...     fedepd.run("synthetic", rounds=0)
        ... except FedEPDError as error:
        ...     print(error)
        rounds is 0; give at least 1
    """


class BadConfig(FedEPDError):
    """A setting that cannot be used.

    Examples:
        >>> import fedepd
        >>> fedepd.Experiment.make("fedavg", seed=-1)
        Traceback (most recent call last):
        fedepd.errors.BadConfig: seed is -1; give 0 or more
    """


class BadData(FedEPDError):
    """A file or graph that cannot be used.

    Examples:
        >>> import fedepd
        >>> import torch
        >>> fedepd.Graph.make(torch.eye(2), torch.tensor([[0], [5]]), torch.tensor([0, 1]))
        Traceback (most recent call last):
        fedepd.errors.BadData: edge_index names node 5, but nodes are numbered 0..1; correct the edge list
    """


class BadMessage(FedEPDError):
    """A message or reply that fails its checks.

    Examples:
        >>> from fedepd.errors import BadMessage, FedEPDError
        >>> issubclass(BadMessage, FedEPDError)
        True
    """


class UnknownName(BadConfig):
    """A name that is not among the choices.

    Args:
        kind: What the name should be a name of.
        name: What was given.
        choices: What could have been given.

    Examples:
        >>> from fedepd.errors import UnknownName
        >>> raise UnknownName("method", "fedepp", ["fedavg", "fedepd"])
        Traceback (most recent call last):
        fedepd.errors.UnknownName: unknown method 'fedepp'; did you mean 'fedepd'? (choices: fedavg, fedepd)
    """

    def __init__(self, kind: str, name: str, choices: Iterable[str]) -> None:
        choices = list(choices)
        near = difflib.get_close_matches(name[:LIMIT], choices[:MOST_CHOICES], n=1)
        hint = f"did you mean '{shown(near[0])}'? " if near else ""
        super().__init__(f"unknown {kind} '{shown(name)}'; {hint}(choices: {listed(choices, MOST_CHOICES)})")


class ClientFailed(FedEPDError):
    """An exception inside a client's step, with the place where it happened.

    Args:
        client: The client's number.
        round: The round's number.
        stage: What the client was doing, such as "client_step".
        cause: The exception.

    Examples:
        >>> from fedepd.errors import ClientFailed
        >>> raise ClientFailed(3, 7, "client_step", ValueError("no edges"))
        Traceback (most recent call last):
        fedepd.errors.ClientFailed: client 3 failed in round 7 (client_step): ValueError: no edges
    """

    def __init__(self, client: int, round: int, stage: str, cause: BaseException) -> None:
        super().__init__(
            f"client {client} failed in round {round} ({stage}): {type(cause).__name__}: {cause}"
        )
        self.client, self.round, self.stage = client, round, stage
