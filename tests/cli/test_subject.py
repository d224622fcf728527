"""The options that name a graph are the same for every command that looks at one."""

from __future__ import annotations

from fedepd.cli.parser import Parser
from fedepd.cli.subject import add_subject_options
from fedepd.model.subject import Files


def test_every_file_has_an_option() -> None:
    parser = Parser(prog="fedepd x")
    add_subject_options(parser)
    assert set(vars(parser.parse([]))) == set(Files.__dataclass_fields__)
