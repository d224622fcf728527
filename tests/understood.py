"""Whether a command of a page is understood. It is parsed and stopped before it reads or writes anything."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import NoReturn

import pytest

from fedepd.cli import main
from fedepd.cli.parser import Parser


def understood(commands: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> dict[str, bool]:
    """Each command -> whether the command line takes it."""

    class Understood(Exception):
        pass

    parse = Parser.parse

    def parse_and_stop(self: Parser, arguments: Sequence[str]) -> NoReturn:
        parse(self, arguments)
        raise Understood

    found = dict.fromkeys(commands, False)
    with monkeypatch.context() as patch:
        patch.setattr(Parser, "parse", parse_and_stop)
        for command in commands:
            try:
                main(shlex.split(command, comments=True)[1:])
            except Understood:
                found[command] = True
    return found
