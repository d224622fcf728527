"""Secure sums of a whole run: real executors and the server's exchange, with answers lost or changed between.

The digest is the rehearsal's, whoever is lost. The protocol's own tests are tests/privacy/test_secure_sum.py.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("nvflare", reason="needs the extra 'federation'")

from nvflare.apis.shareable import Shareable

from deploy.office import Change, Office, answer_of, furnish, unchanged
from fedepd.clients.client_file import write_client_file
from fedepd.deploy.ledger import Ledger
from fedepd.deploy.line import QuorumLost
from fedepd.deploy.rehearse import rehearse
from fedepd.deploy.signing import MAX_SIGNATURE
from fedepd.deploy.sum_site import ADVERT, bound_to, packed_advert
from fedepd.deploy.task import FederationTask
from fedepd.deploy.wire import (
    DECLARE,
    KEYS,
    MASKED,
    OPENED,
    SHARES,
    SIGNED,
    STEP,
    TRIPS,
    Sum,
    message_record,
    sum_record,
)
from fedepd.methods import METHODS
from fedepd.privacy.secure_sum import OPENED_SHARES, SEALED, SECRET, Advert, advert_text, threshold
from fedepd.rounds.sums import ADVERT_BYTES, OPENED_BYTES, SEALED_BYTES, SIGNATURE_BYTES
from toy import CLASSES, FEATURES, toy_clients

SITES = ["a", "b", "c", "d", "e"]
ADDITIVE = [
    name for name, cls in METHODS.items() if not cls.merges_clients and not cls().needs_single_replies
]


@pytest.fixture
def kits(five_kits: Path, tmp_path: Path) -> Path:
    """Kits as they came, without anything remembered."""
    folder = tmp_path / "fed"
    for site in SITES:
        shutil.copytree(five_kits / site, folder / site)
    furnish(folder, SITES)
    return folder


def make_task(method: str = "fedepd", sites: int = 5, rounds: int = 3, **more: Any) -> FederationTask:
    settings = {"rounds": rounds, "evaluate_every": 2, "hidden": 4, "min_count": 2, **more}
    return FederationTask(
        "r", method, "default", settings, FEATURES, CLASSES, tuple(SITES[:sites]), 3, deadline=60
    )


def files_of(kits: Path, sites: int = 5) -> list[Path]:
    return [kits / f"{site}.npz" for site in SITES[:sites]]


def losing(*lost: tuple[str, str, int]) -> Change:
    """Loses the answers of sites to tasks: (site, task, from which time on)."""
    times: dict[tuple[str, str], int] = {}

    def change(site: str, name: str, answer: Any) -> Any:
        times[site, name] = times.get((site, name), 0) + 1
        gone = any(site == s and name == n and times[site, name] == time for s, n, time in lost)
        return None if gone else answer

    return change


def permissive(kits: Path) -> None:
    for site in SITES:
        (kits / site / "local" / "limits.toml").write_text("min_count = 1\nmin_holders = 1\n")


@pytest.mark.parametrize(
    ("method", "settings"), [*((name, {}) for name in ADDITIVE), ("fedproto", {"widths": "2-4-6"})], ids=str
)
def test_every_method_reaches_the_digest_of_the_rehearsal(
    kits: Path, method: str, settings: dict[str, Any]
) -> None:
    permissive(kits)
    task = make_task(method, sites=3, **settings)
    office = Office(kits, task)
    ledger = office.run()
    assert [log for log in office.log.values() if log] == []
    assert all(not line.get("refused") for line in ledger.progress.lines)
    assert [line["clients"] for line in ledger.progress.lines] == [(0, 1, 2)] * 3
    assert ledger.digest() == rehearse(task, files_of(kits, 3)).digest()
    trips = {name for _, name in office.asked}
    assert not trips & {STEP, "fedepd_evaluate"}  # no answer was seen alone
    asked = [name for site, name in office.asked if site == "a"]
    assert asked.count(KEYS) == 1  # all other keys came with the sum before
    assert asked.count(OPENED) == 1 + 3 + 2 + 1  # sizes, three steps, two evaluations, the final model


DROPS: list[tuple[int, list[tuple[str, str, int]]]] = [
    (4, [("b", KEYS, 1)]),  # lost from the sum of sizes: it stays out of the run
    (1, [("c", SHARES, 3)]),
    (1, [("c", MASKED, 2)]),
    (1, [("c", MASKED, 3)]),
    (2, [("c", MASKED, 3), ("c", MASKED, 5)]),
    (0, [("c", MASKED, 4)]),
    (0, [("e", OPENED, 2)]),  # between masking and opening: its numbers are in the sum
    (0, [("e", OPENED, 1)]),
    (1, [("a", MASKED, 2), ("b", OPENED, 3)]),
    (1, [("d", SHARES, 2), ("e", MASKED, 4)]),
]


@pytest.mark.heavy
@pytest.mark.parametrize(("expected_missing", "lost"), DROPS, ids=str)
def test_the_digest_is_the_rehearsals_whoever_is_lost(
    kits: Path, expected_missing: int, lost: list[tuple[str, str, int]]
) -> None:
    """Five sites, t = 4: one may be lost in each sum. The rehearsal leaves out whoever was not in a sum.

    The sums are: 1 sizes, 2 step 1, 3 step 2, 4 evaluation, 5 step 3, 6 step 4, 7 evaluation.
    """
    permissive(kits)
    task = make_task(rounds=4)
    ledger = Office(kits, task, losing(*lost)).run()
    lines = ledger.progress.lines
    assert ledger.together is not None
    members = ledger.together[1]
    expected = rehearse(task, files_of(kits), lines, members)
    assert ledger.digest() == expected.digest()
    assert sum(5 - len(line["clients"]) for line in lines) == expected_missing


def test_a_site_that_is_lost_before_it_opens_is_in_the_sum_and_comes_back(kits: Path) -> None:
    """Site e dies after it has sent its masked vector of round 1, and is started again."""
    permissive(kits)
    task = make_task(rounds=4)
    office = Office(kits, task)
    opened: list[int] = []

    def change(site: str, name: str, answer: Any) -> Any:
        if (site, name) == ("e", OPENED):
            opened.append(1)
            if len(opened) == 2:  # the first was the sum of sizes
                office.sites["e"] = office.start("e")
                return None
        return answer

    office.change = change
    ledger = office.run()
    assert [line["clients"] for line in ledger.progress.lines] == [(0, 1, 2, 3, 4)] * 4
    assert ledger.digest() == rehearse(task, files_of(kits)).digest()


def test_class_names_leave_a_site_as_hashes(kits: Path) -> None:
    """The kits hold no names. Four sites call their classes alike, and d calls class 1 otherwise.

    It is lost from the run, and the others go on. The server never sees a name.
    """
    permissive(kits)
    for site, client in zip(SITES, toy_clients(5), strict=True):
        names = ("clean", "mule" if site != "d" else "fraud", "takeover")[:CLASSES]
        write_client_file(
            replace(client, graph=replace(client.graph, label_names=names)), kits / f"{site}.npz"
        )
    declared: dict[str, Any] = {}

    def change(site: str, name: str, answer: Any) -> Any:
        if name == DECLARE:
            declared[site] = answer["label_names"]
        return answer

    ledger = Office(kits, make_task("fedavg", rounds=1), change).run()
    assert [line["clients"] for line in ledger.progress.lines] == [(0, 1, 2, 4)]
    (refusal,) = [r for line in ledger.progress.lines for r in line["refused"]]
    assert (refusal["client"], refusal["field"]) == (3, "label_names")
    assert "class 1 has another name than at most sites" in refusal["reason"]
    assert declared["a"] == declared["b"] != declared["d"]
    assert declared["a"][0] == declared["d"][0]
    assert all(re.fullmatch("[0-9a-f]{64}", name) for names in declared.values() for name in names)


def test_too_few_sites_end_the_job_and_name_who_is_missing(kits: Path) -> None:
    permissive(kits)
    lost = losing(("c", MASKED, 2), ("d", MASKED, 2))
    with pytest.raises(QuorumLost, match=r"fedepd_sum_masked in round 1: 3 instead of at least 4 .*c: .*d: "):
        Office(kits, make_task(), lost).run()


@pytest.mark.heavy
def test_a_resumed_round_is_summed_over_the_same_sites_only(kits: Path) -> None:
    """The server loses round 2 and asks again. With the same sites the digest is the same.

    Without one of them, every site refuses: the difference would be that site's numbers.
    """
    permissive(kits)
    task = make_task(rounds=2)
    office = Office(kits, task)
    first = office.run()
    for lost, again in (("", True), ("c", False)):
        ledger = Ledger(task)
        ledger.together = first.together
        office.connect(ledger.together)
        office.change = unchanged if again else losing((lost, MASKED, 1))
        if again:
            assert office.run(ledger).digest() == first.digest()
            continue
        with pytest.raises(QuorumLost, match=r"fedepd_sum_opened in round 1: 0 instead of at least 4"):
            office.run(ledger)
        assert all(
            "was summed before, over other sites" in office.log[site][-1] for site in ("a", "b", "d", "e")
        )


def test_what_a_site_remembers_outlives_a_restart(kits: Path) -> None:
    permissive(kits)
    task = make_task(rounds=1)
    office = Office(kits, task)
    first = office.run()
    office.sites = {site: office.start(site) for site in SITES}
    ledger = Ledger(task)
    ledger.together = first.together
    office.connect(ledger.together)
    office.change = losing(("c", MASKED, 1))
    with pytest.raises(QuorumLost):
        office.run(ledger)
    assert "was summed before, over other sites" in office.log["a"][-1]


# --- a dishonest server -------------------------------------------------------------------------------------


class Server:
    """Plays the server of one sum by hand."""

    def __init__(self, office: Office, which: Sum, sites: list[str]) -> None:
        self.office, self.which, self.sites = office, which, sites
        self.number = {site: SITES.index(site) for site in SITES}

    def ask(self, name: str, site: str, message: Any = None, **parts: Any) -> Any:
        record = sum_record(self.which, {k: np.asarray(v) for k, v in parts.items()}, message or {})
        return self.office.ask(site, name, record)

    def adverts(self) -> dict[str, Any]:
        members = {} if self.which.purpose == "sizes" else {"members": np.arange(5)}
        return {s: self.ask(KEYS, s, **members)["parts"]["advert"] for s in self.sites}

    def share(self, adverts: dict[str, Any], messages: Callable[[str], Any]) -> dict[str, Any]:
        parts = {
            "sites": np.array([self.number[s] for s in adverts]),
            "adverts": np.concatenate(list(adverts.values())),
        }
        return {s: self.ask(SHARES, s, messages(s), used=np.array([0]), **parts) for s in self.sites}

    def sealed_for(self, site: str, shares: dict[str, Any]) -> dict[str, Any]:
        others = [s for s in self.sites if s != site]
        rows = []
        for other in others:
            known = shares[other]["parts"]["sites"].tolist()
            rows.append(shares[other]["parts"]["sealed"][known.index(self.number[site])])
        return {"sites": np.array([self.number[s] for s in others]), "sealed": np.stack(rows)}

    def masked(self, message: Any) -> None:
        """Up to the masked vectors of all sites, all honest."""
        shares = self.share(self.adverts(), lambda site: message)
        for site in self.sites:
            assert "masked" in self.ask(MASKED, site, **self.sealed_for(site, shares))["parts"]

    def signed(self, told: Mapping[str, Any]) -> dict[str, Any]:
        """Each site's signature of the survivors that it is told, as parts of the next message."""
        rows = [self.ask(SIGNED, s, survivors=told[s])["parts"]["signature"] for s in told]
        return {"sites": np.array([self.number[s] for s in told]), "signatures": np.concatenate(rows)}


@pytest.fixture
def started(kits: Path) -> Office:
    """After an honest sum of sizes."""
    permissive(kits)
    office = Office(kits, make_task())
    office.exchange.sum_sizes(range(5))
    office.exchange.close()
    return office


def message_for(office: Office) -> dict[str, Any]:
    from fedepd.deploy.limits import expected_message

    return expected_message(office.task, 0)


@pytest.mark.hostile
def test_a_server_that_shows_one_site_another_model_gets_no_vector(started: Office) -> None:
    """Site e is shown another first layer. What it sealed does not open at the others, nor theirs at e."""
    message = message_for(started)
    crafted = {**message, "encoder.weight": message["encoder.weight"] + 1}
    server = Server(started, Sum("step", 1), SITES)
    shares = server.share(server.adverts(), lambda site: crafted if site == "e" else message)
    for site in SITES:
        answer = server.ask(MASKED, site, **server.sealed_for(site, shares))
        assert answer.get_return_code() == "EXECUTION_EXCEPTION"
        assert "do not open: the server showed that site another model" in started.log[site][-1]


@pytest.mark.hostile
def test_a_server_that_asks_twice_for_survivors_gets_one_answer(started: Office) -> None:
    server = Server(started, Sum("step", 1), SITES)
    server.masked(message_for(started))
    assert "opened" in server.ask(OPENED, "a", survivors=np.arange(5))["parts"]
    assert "signature" in server.ask(SIGNED, "b", survivors=np.arange(4))["parts"]
    for name, site in ((OPENED, "a"), (SIGNED, "a"), (SIGNED, "b")):
        again = server.ask(name, site, survivors=np.array([0, 1, 2, 4]))
        assert again.get_return_code() == "EXECUTION_EXCEPTION"
        assert "out of order" in started.log[site][-1]


@pytest.mark.hostile
def test_a_server_that_tells_sites_other_survivors_opens_nothing(started: Office) -> None:
    """Of five sites, t = 4. Three hear that e is lost, d that c is, e that d is: no list has four."""
    server = Server(started, Sum("step", 1), SITES)
    server.masked(message_for(started))
    told = {s: np.array([0, 1, 2, 3]) for s in "abc"}
    told |= {"d": np.array([0, 1, 3, 4]), "e": np.array([0, 1, 2, 4])}
    signatures = server.signed(told)
    for site in SITES:
        answer = server.ask(OPENED, site, survivors=told[site], **signatures)
        assert answer.get_return_code() == "EXECUTION_EXCEPTION"
        assert "sites signed the survivors" in started.log[site][-1]


@pytest.mark.hostile
def test_signatures_and_their_sites_are_equally_many(started: Office) -> None:
    server = Server(started, Sum("step", 1), SITES)
    server.masked(message_for(started))
    signatures = server.signed(dict.fromkeys("abcd", np.arange(4)))
    parts = {**signatures, "sites": np.arange(3), "survivors": np.arange(4)}
    assert server.ask(OPENED, "a", **parts).get_return_code() == "EXECUTION_EXCEPTION"
    assert "names 3 sites and sends 4 signatures" in started.log["a"][-1]


@pytest.mark.hostile
@pytest.mark.parametrize(
    ("survivors", "says"),
    [
        (np.array([0, 1, 2]), "3 survivors, and it needs 4"),
        (np.array([1, 2, 3, 4]), "this site is not among them"),
        (np.array([0, 1, 2, 2]), "must name each site once"),
        (np.array([0, 1, 2, 9]), "must name each site once"),
        (np.array([0.0, 1, 2, 3]), "numbers of sites"),
        (np.arange(10), "numbers of sites"),
    ],
)
def test_survivors_that_a_site_refuses(started: Office, survivors: Any, says: str) -> None:
    message = message_for(started)
    server = Server(started, Sum("step", 1), SITES)
    shares = server.share(server.adverts(), lambda site: message)
    server.ask(MASKED, "a", **server.sealed_for("a", shares))
    assert server.ask(SIGNED, "a", survivors=survivors).get_return_code() == "EXECUTION_EXCEPTION"
    assert says in started.log["a"][-1]


@pytest.mark.hostile
def test_a_server_that_opens_other_classes_in_a_later_round(started: Office) -> None:
    """A class that was closed and is open in the next round would show what its holders add."""
    from fedepd.rounds.guard import OPEN

    message = message_for(started)
    server = Server(started, Sum("step", 1), SITES)
    server.share(server.adverts(), lambda site: message)
    server = Server(started, Sum("step", 2), SITES)
    message[OPEN] = message[OPEN] + 1
    shares = server.share(server.adverts(), lambda site: message)
    assert shares["a"].get_return_code() == "EXECUTION_EXCEPTION"
    assert "changed which classes are open" in started.log["a"][-1]


@pytest.mark.hostile
def test_a_server_cannot_ask_for_a_plain_answer(started: Office) -> None:
    record = message_record(1, message_for(started))
    assert started.ask("a", STEP, record).get_return_code() == "TASK_UNKNOWN"
    assert started.ask("a", "fedepd_evaluate", record).get_return_code() == "TASK_UNKNOWN"
    declared = started.ask("a", "fedepd_declare", message_record(0, {}))
    assert declared["num_nodes"] == declared["num_train"] == 0
    assert not any(sizes.any() for sizes in declared["class_sizes"].values())


@pytest.mark.hostile
@pytest.mark.parametrize(
    ("which", "says"),
    [
        (Sum("step", 0), "which the run does not have"),
        (Sum("step", 4), "which the run does not have"),
        (Sum("evaluate", 1), "which the run does not have"),
        (Sum("sizes", 1), "which the run does not have"),
    ],
)
def test_a_sum_that_the_run_does_not_have(started: Office, which: Sum, says: str) -> None:
    assert Server(started, which, SITES).ask(KEYS, "a").get_return_code() == "EXECUTION_EXCEPTION"
    assert says in started.log["a"][-1]


@pytest.mark.hostile
def test_a_server_cannot_shrink_the_run_to_its_friends(started: Office, kits: Path) -> None:
    """Site a knows that five sites are in the run. It takes no other list."""
    answer = Server(started, Sum("step", 1), SITES).ask(KEYS, "a", members=np.array([0, 3, 4]))
    assert answer.get_return_code() == "EXECUTION_EXCEPTION"
    assert "3 sites of the run, and it needs 4" in started.log["a"][-1]
    answer = Server(started, Sum("step", 1), SITES).ask(KEYS, "a", members=np.array([0, 2, 3, 4]))
    assert "changed which sites are in the run" in started.log["a"][-1]


@pytest.mark.hostile
def test_no_sum_of_a_round_before_sizes_were_summed(kits: Path) -> None:
    permissive(kits)
    office = Office(kits, make_task())
    answer = Server(office, Sum("step", 1), SITES).ask(KEYS, "a")
    assert answer.get_return_code() == "EXECUTION_EXCEPTION"
    assert "before the sizes of all sites were summed" in office.log["a"][-1]
    office.exchange.close()


@pytest.mark.hostile
def test_the_servers_own_key_in_a_sites_place_is_refused(started: Office) -> None:
    """The server signs keys of its own with the key of another site that works with it."""
    server = Server(started, Sum("step", 1), SITES)
    adverts = server.adverts()
    adverts["c"] = adverts["d"]
    answer = server.share(adverts, lambda site: message_for(started))["a"]
    assert answer.get_return_code() == "EXECUTION_EXCEPTION"
    assert "the keys of site 2 are not signed by the site" in started.log["a"][-1]


@pytest.mark.hostile
def test_a_damaged_memory_refuses_the_run(kits: Path) -> None:
    permissive(kits)
    task = make_task()
    for text in ("{", '{"sum": "step of round 1"}', '{"sum": 1, "set": [1]}', '{"sum": "x", "set": ["a"]}'):
        book = kits / "a" / "state" / "answers" / "r.sums.jsonl"
        book.parent.mkdir(parents=True, exist_ok=True)
        book.write_text(text + "\n")
        office = Office(kits, task)
        office.exchange.close()
        assert office.sites["a"]._admitted is None
        assert "r.sums.jsonl" in office.log["a"][-1]


# --- a dishonest site ---------------------------------------------------------------------------------------

WRONG: dict[str, tuple[str, Callable[[Any], Any], str]] = {
    "unsigned": (KEYS, lambda r: answer_of(r, advert=r["parts"]["advert"] ^ 1), "not signed by the site"),
    "two adverts": (KEYS, lambda r: answer_of(r, advert=np.tile(r["parts"]["advert"], (2, 1))), "one"),
    "short advert": (KEYS, lambda r: answer_of(r, advert=r["parts"]["advert"][:, 1:]), "rows of"),
    "few shares": (SHARES, lambda r: answer_of(r, sealed=r["parts"]["sealed"][1:]), "a row for each"),
    "shares of floats": (SHARES, lambda r: answer_of(r, sealed=r["parts"]["sealed"] * 1.0), "rows of"),
    "own name": (SHARES, lambda r: answer_of(r, sites=r["parts"]["sites"][::-1].copy()), "in order"),
    "long vector": (MASKED, lambda r: answer_of(r, masked=np.zeros(10**6, np.int64)), "whole numbers"),
    "float vector": (MASKED, lambda r: answer_of(r, masked=r["parts"]["masked"] * 1.0), "whole numbers"),
    "no vector": (MASKED, lambda r: Shareable({**r, "parts": {}}), "whole numbers"),
    "other round": (MASKED, lambda r: Shareable({**r, "round": 7}), "but this is"),
    "other purpose": (MASKED, lambda r: Shareable({**r, "purpose": "x"}), "purpose"),
    "another field": (MASKED, lambda r: Shareable({**r, "labels": np.ones(3)}), "labels"),
    "not a table": (MASKED, lambda r: Shareable({**r, "parts": [1]}), "not a table of arrays"),
    "short shares": (OPENED, lambda r: answer_of(r, opened=r["parts"]["opened"][:, 1:]), "rows of"),
}


@pytest.mark.heavy
@pytest.mark.hostile
@pytest.mark.parametrize("case", WRONG)
def test_a_broken_answer_costs_its_site_the_sum_and_is_named(kits: Path, case: str) -> None:
    """The others go on. After three such sums the site is not asked again."""
    permissive(kits)
    name, spoil, says = WRONG[case]
    task = make_task("fedavg", rounds=4)
    ledger = Office(kits, task, lambda site, n, r: spoil(r) if (site, n) == ("b", name) else r).run()
    refused = [r for line in ledger.progress.lines for r in line.get("refused", [])]
    assert refused
    assert {r["client"] for r in refused} == {1}
    assert any(says in f"{r['field']} {r['reason']}" for r in refused)
    assert not any(r["absent"] for r in refused)


@pytest.mark.hostile
@pytest.mark.parametrize("spoil", [lambda rows: rows[:0], lambda rows: rows ^ 1, lambda rows: rows[:, 1:]])
def test_a_signature_that_is_not_the_sites_is_refused_and_named(
    kits: Path, spoil: Callable[[Any], Any]
) -> None:
    """Five sites, t = 4. Site c is lost in round 1, so that all others must sign. That of b is spoilt."""
    permissive(kits)
    lose = losing(("c", MASKED, 2))

    def change(site: str, name: str, answer: Any) -> Any:
        if (site, name) == ("b", SIGNED):
            return answer_of(answer, signature=spoil(answer["parts"]["signature"]))
        return lose(site, name, answer)

    with pytest.raises(QuorumLost, match=r"signed in round 1: 3 instead of at least 4 .*b: signature must"):
        Office(kits, make_task("fedavg", rounds=2), change).run()


@pytest.mark.hostile
@pytest.mark.parametrize("point", [bytes(SECRET), (1).to_bytes(SECRET, "little")])
def test_a_site_with_keys_of_low_order_is_lost_and_the_others_go_on(kits: Path, point: bytes) -> None:
    """The site signs them. Without the check every other site would fail, and none would be blamed."""
    permissive(kits)
    office = Office(kits, make_task("fedavg", rounds=2))
    admitted = office.sites["b"]._admitted
    assert admitted is not None
    sums = admitted.sums
    assert sums is not None

    def keys(which: Sum, parts: Any = None) -> Any:
        about = bound_to(office.task, which), which.round, which.attempt
        return {
            "advert": packed_advert(
                Advert(point, point[::-1], sums._sign(advert_text(*about, 1, point, point[::-1])))
            )
        }

    sums.keys = keys  # type: ignore[method-assign]
    ledger = office.run()
    refused = ledger.progress.lines[0]["refused"]
    assert [(r["client"], r["absent"]) for r in refused] == [(1, False)]
    assert "not two keys with which a secret can be agreed" in refused[0]["reason"]
    assert [line["clients"] for line in ledger.progress.lines] == [(0, 2, 3, 4)] * 2


@pytest.mark.heavy
@pytest.mark.parametrize("share", [0.6, 0.8])
def test_cohorts_that_change_from_round_to_round(kits: Path, share: float) -> None:
    """A site that is not in the next cohort opens the present sum, and makes no keys for the next one."""
    permissive(kits)
    task = make_task(rounds=5, participation=share)
    office = Office(kits, task)
    ledger = office.run()
    assert [log for log in office.log.values() if log] == []
    assert {len(line["clients"]) for line in ledger.progress.lines} == {round(5 * share)}
    assert len({line["clients"] for line in ledger.progress.lines}) > 1
    assert ledger.digest() == rehearse(task, files_of(kits)).digest()


@pytest.mark.hostile
def test_a_wrong_opened_share_ends_the_sum_with_a_sentence(kits: Path) -> None:
    def change(site: str, name: str, answer: Any) -> Any:
        if (site, name) != ("a", OPENED):
            return answer
        return answer_of(answer, opened=np.ones_like(answer["parts"]["opened"]))

    permissive(kits)
    with pytest.raises(QuorumLost, match=r"sizes of round 0 cannot be opened: .*do not fit together"):
        Office(kits, make_task(), change).run()


def test_the_bytes_of_masks_are_those_of_the_protocol() -> None:
    """``rounds.sums`` counts them without knowing the protocol."""
    assert (ADVERT_BYTES, SEALED_BYTES, OPENED_BYTES) == (ADVERT, SEALED, OPENED_SHARES)
    assert SIGNATURE_BYTES == MAX_SIGNATURE
    assert ADVERT > 2 * SECRET
    assert threshold(5) == 4
    assert len(TRIPS) == 5
