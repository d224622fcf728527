"""``fedepd federation``: its actions."""

from __future__ import annotations

import pytest

pytest.importorskip("nvflare", reason="needs the extra 'federation'")

from fedepd.cli.federation import ACTIONS, main
from fedepd.errors import UnknownName


def test_without_an_action_it_lists_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert main(["--help"]) == 0
    main(["--help"])
    lines = capsys.readouterr().out
    assert [name for name in ACTIONS if f"\n  {name} " not in lines] == []


def test_a_mistyped_action_is_guessed() -> None:
    with pytest.raises(UnknownName, match="did you mean 'join'"):
        main(["jion"])
