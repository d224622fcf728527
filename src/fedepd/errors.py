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
    """Base of all errors raised on purpose. The command line prints one as one sentence and exits with 2."""


class BadConfig(FedEPDError):
    """A setting that cannot be used."""


class BadData(FedEPDError):
    """A file or graph that cannot be used."""


class BadMessage(FedEPDError):
    """A message or reply that fails its checks."""


class UnknownName(BadConfig):
    """A name that is not among the choices.

    Its message reads ``unknown method 'fedepp'; did you mean 'fedepd'? (choices: ...)``.
    """

    def __init__(self, kind: str, name: str, choices: Iterable[str]) -> None:
        choices = list(choices)
        near = difflib.get_close_matches(name[:LIMIT], choices[:MOST_CHOICES], n=1)
        hint = f"did you mean '{shown(near[0])}'? " if near else ""
        super().__init__(f"unknown {kind} '{shown(name)}'; {hint}(choices: {listed(choices, MOST_CHOICES)})")


class ClientFailed(FedEPDError):
    """An exception inside a client's step, with the place where it happened."""

    def __init__(self, client: int, round: int, stage: str, cause: BaseException) -> None:
        super().__init__(
            f"client {client} failed in round {round} ({stage}): {type(cause).__name__}: {cause}"
        )
        self.client, self.round, self.stage = client, round, stage
