"""What a site remembers of sums, in one run and over all runs of its kit."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("nvflare", reason="needs the extra 'federation'")

from deploy.office import Office, furnish
from deploy.test_sums import SITES, Server, kits, losing, make_task, message_for, permissive
from fedepd.datasets import nodes_sha256
from fedepd.deploy.book import MAX_BOOK, Book, Cohorts
from fedepd.deploy.line import QuorumLost
from fedepd.deploy.wire import KEYS, MASKED, Sum
from fedepd.errors import BadData
from fedepd.privacy.secure_sum import SecureSumFailed
from fedepd.rounds.sums import sizes_of
from toy import toy_client

__all__ = ["kits"]  # fixtures
OTHERS = "summed before with other sites (a, b, c, d, e)"


def test_a_book_takes_a_set_once(tmp_path: Path) -> None:
    path = tmp_path / "answers" / "r.sums.jsonl"
    book = Book(path)
    assert book.get("step of round 1") is None
    book.check("step of round 1", [2, 0, 1], "other sites")
    book.check("step of round 1", [0, 1, 2], "other sites")
    again = Book(path)
    assert again.get("step of round 1") == [0, 1, 2]
    with pytest.raises(SecureSumFailed, match="other sites"):
        again.check("step of round 1", [0, 1], "other sites")
    assert len(path.read_text().splitlines()) == 1


@pytest.mark.hostile
@pytest.mark.parametrize("what", ["pipe", "folder", "huge", "not text", "mixed", "bool"])
def test_a_book_that_is_none(tmp_path: Path, what: str) -> None:
    path = tmp_path / "b.jsonl"
    if what == "pipe":
        os.mkfifo(path)
    elif what == "folder":
        path.mkdir()
    elif what == "huge":
        with path.open("wb") as file:
            file.truncate(MAX_BOOK + 1)
    else:
        text = {"not text": b"\xff\xfe", "mixed": b'[1, "a"]', "bool": b"[true]"}[what]
        path.write_bytes(text if what == "not text" else b'{"sum": "x", "set": ' + text + b"}\n")
    with pytest.raises(BadData, match=r"b\.jsonl"):
        Book(path)


def cohorts(path: Path, sites: str, may_differ: bool = False, client: int = 0) -> Cohorts:
    return Cohorts(path, nodes_sha256(toy_client(client).graph), tuple(sites), may_differ)


def test_the_same_data_are_summed_with_the_same_sites(tmp_path: Path) -> None:
    """By name, whatever their numbers are, and until the owner agrees to others."""
    path = tmp_path / "cohorts.jsonl"
    cohorts(path, "abc").remember("sizes", b"", [0, 1, 2])
    assert cohorts(path, "cab").fault("sizes", b"", [0, 1, 2]) is None
    assert "with other sites (a, b, c); the difference" in str(cohorts(path, "abd").refusal())
    assert "with other sites (a, b, c); the difference" in str(
        cohorts(path, "abd").fault("sizes", b"", [0, 1, 2])
    )
    more = cohorts(path, "abcd")
    assert more.refusal() is None  # the fourth may stay away again
    assert more.fault("sizes", b"", [0, 1, 2]) is None
    assert "other sites" in str(more.fault("sizes", b"", [0, 1, 2, 3]))
    assert cohorts(path, "abd", client=1).refusal() is None  # other data
    agreed = cohorts(path, "abd", may_differ=True)
    assert agreed.refusal() is agreed.fault("sizes", b"", [0, 1, 2]) is None
    agreed.remember("sizes", b"", [0, 1, 2])
    assert cohorts(path, "abd").refusal() is None
    assert cohorts(path, "abc").refusal() is not None


def test_the_same_message_is_answered_with_the_same_sites(tmp_path: Path) -> None:
    path = tmp_path / "cohorts.jsonl"
    cohorts(path, "abcd").remember("step", b"model", [0, 1, 2, 3])
    again = cohorts(path, "abcd")
    assert again.fault("step", b"model", [0, 1, 2, 3]) is None
    assert "the same step was summed before" in str(again.fault("step", b"model", [0, 1, 2]))
    assert again.fault("step", b"other model", [0, 1, 2]) is None
    assert again.fault("evaluate", b"model", [0, 1, 2]) is None


# --- a coordinator that runs twice over the same data -------------------------------------------------------


def sizes_summed(office: Office, sites: int) -> Any:
    try:
        return sizes_of(office.exchange.sum_sizes(range(sites))[0])
    finally:
        office.exchange.close()


@pytest.mark.hostile
@pytest.mark.parametrize("agreed", [False, True])
def test_a_second_run_without_one_site(kits: Path, agreed: bool) -> None:
    """The difference of the two sums of sizes is site e's classes. It is refused unless the owners agree."""
    permissive(kits)
    first = sizes_summed(Office(kits, make_task()), 5)
    if agreed:
        for site in SITES:
            (kits / site / "local" / "limits.toml").write_text("new_cohorts = true\nmin_count = 1\n")
    office = Office(kits, replace(make_task(sites=4), run="r2"))
    if not agreed:
        office.exchange.close()
        for site in SITES[:4]:
            assert office.sites[site]._admitted is None
            assert OTHERS in office.log[site][-1]
        return
    own = toy_sizes(kits, "e")
    assert (first.train - sizes_summed(office, 4).train).tolist() == own


def toy_sizes(kits: Path, site: str) -> list[int]:
    office = Office(kits, replace(make_task(), run="r3"))
    office.exchange.close()
    admitted = office.sites[site]._admitted
    assert admitted is not None
    sizes: list[int] = admitted.participant.own_sizes.train.tolist()
    return sizes


@pytest.mark.hostile
def test_a_second_run_that_loses_one_site_before_sizes_are_summed(kits: Path) -> None:
    """The task is the same but for its name. It is refused with one site less, and goes on with all."""
    permissive(kits)
    sizes_summed(Office(kits, make_task()), 5)
    office = Office(kits, replace(make_task(), run="r2"), losing(("e", MASKED, 1)))
    with pytest.raises(QuorumLost, match="fedepd_sum_opened in round 0: 0 instead of at least 4"):
        office.exchange.sum_sizes(range(5))
    assert all(OTHERS in office.log[site][-1] for site in SITES[:4])
    again = office.connect(None)
    assert again.sum_sizes(range(5))[1] == (0, 1, 2, 3, 4)
    again.close()


@pytest.mark.hostile
def test_a_run_again_under_another_name_with_a_site_lost_in_a_round(kits: Path) -> None:
    """All that is sent in round 1 is the same again, so the difference would be site c's update."""
    permissive(kits)
    Office(kits, make_task(rounds=1)).run()
    task = replace(make_task(rounds=1), run="r2")
    office = Office(kits, task, losing(("c", MASKED, 2)))
    with pytest.raises(QuorumLost, match="fedepd_sum_opened in round 1: 0 instead of at least 4"):
        office.run()
    assert all("the same step was summed before" in office.log[site][-1] for site in "abde")
    furnish(kits, SITES, one_node_class=True)  # other data
    Office(kits, replace(task, run="r4"), losing(("c", MASKED, 2))).run()


@pytest.mark.hostile
def test_a_server_that_skips_the_sum_of_sizes_in_the_second_run(kits: Path) -> None:
    permissive(kits)
    sizes_summed(Office(kits, make_task()), 5)
    office = Office(kits, replace(make_task(), run="r2"))
    office.exchange.close()
    answer = Server(office, Sum("step", 1), SITES).ask(KEYS, "a", members=np.array([0, 1, 2, 3]))
    assert answer.get_return_code() == "EXECUTION_EXCEPTION"
    assert OTHERS in office.log["a"][-1]
    assert message_for(office)
