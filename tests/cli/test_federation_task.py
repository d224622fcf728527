"""What a task may set, and what its options may say."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("nvflare", reason="needs the extra 'federation'")

from fedepd.cli.federation import main
from fedepd.cli.federation_task import method_of, task_settings
from fedepd.clients.client_file import write_client_file
from fedepd.errors import BadConfig, UnknownName
from toy import toy_client


def test_a_task_cannot_cut_a_graph() -> None:
    """The sites are the clients: all settings of a run but those of the partition."""
    names = task_settings("fedlc")
    assert {"rounds", "lr", "hidden", "tau"} <= set(names)
    assert not {"partition", "clients"} & set(names)
    with pytest.raises(UnknownName, match="unknown method 'fedlx'"):
        task_settings("fedlx")


def test_a_setting_that_changes_nothing_is_refused(tmp_path: Path) -> None:
    """Without purification, no score ranks edges. A run with the setting would equal a run without it."""
    write_client_file(toy_client(), tmp_path / "a.npz")
    with pytest.raises(BadConfig, match="with purify = false it changes nothing; leave score out"):
        main(["rehearse", str(tmp_path / "a.npz"), "--purify", "false", "--score", "random"])


def test_the_method_is_read_before_its_options_are_known(tmp_path: Path) -> None:
    """The command line comes before the file, and the file before the default."""
    (tmp_path / "a.toml").write_text('method = "fedlc"')
    config = ["--config", str(tmp_path / "a.toml")]
    assert method_of([]) == "fedepd"
    assert method_of(config) == "fedlc"
    assert method_of([*config, "--method", "fedavg"]) == "fedavg"
