"""A question that a server asks all clients once, beside the rounds. Their answers are added up.

An answer is a vector of whole numbers, so the sum has the same bits in any order and under any masks. Where
the server sees sums only, it sees nothing but this sum.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from fedepd.methods.base import Method, Server
from fedepd.rounds.guard import Privacy
from fedepd.rounds.participant import Participant
from fedepd.rounds.sums import Layout, Vector
from fedepd.types import Tensors


@dataclass(frozen=True, eq=False)
class Setting:
    """What a question may depend on. The server and every client know it before they meet."""

    method: Method[Any]
    server: Server
    privacy: Privacy
    scaled: tuple[int, ...] = ()
    """Positions of the columns that the clients scale together."""
    counted: tuple[int, ...] = ()
    """Positions of the categories whose rows they count together."""
    adapts: bool = False
    """Whether the run has a stage of adaptation."""
    aim: str = ""
    """What a common operating point shall reach (``rounds.point``); empty: there is none."""


class Question(ABC):
    """One question. Its name is its key in ``questions.QUESTIONS``."""

    before: ClassVar[bool] = False
    """Whether it is asked before the first round, with an empty message.

    All others are asked after the last round. Their messages are the method's own, with ``entries``.
    """

    @abstractmethod
    def layout(self, setting: Setting) -> Layout:
        """The parts of every client's vector."""

    @abstractmethod
    def answer(self, participant: Participant, message: Tensors) -> Vector:
        """What a client adds to the sum, in the order of ``layout``."""

    def asked(self, setting: Setting) -> bool:
        """Whether a run with this setting asks it."""
        return True

    def entries(self, setting: Setting) -> Tensors:
        """What the message holds beside the method's own: examples of the right types and shapes."""
        return {}

    def fault(self, message: Tensors, setting: Setting) -> str | None:
        """What is wrong with the values of ``entries`` in a message; None if nothing is."""
        return None

    def answer_fault(self, answer: Vector, validation: int) -> str | None:
        """What is wrong with one client's answer, where it is seen alone; None if nothing is.

        ``validation``: how many validation nodes the client has declared.
        """
        return None
