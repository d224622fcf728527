"""Every case of the corpus again.

A reader takes it or refuses it in one sentence, in little time and memory, and does nothing else.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from bounded import bounded
from fuzz import formats, run
from fuzz.corpus import Case, read_case, read_cases, write_case
from fuzz.formats import FORMATS, Format, crash_of
from fuzz.mutate import CHANGES, mutate

CASES = read_cases()
SEEDS = [case for case in CASES if case.name.partition("--")[2].startswith("seed")]
OLD = {"wire-declaration--seed-counts", "wire-declaration--seed", "kit--seed"}
"""Sound once, or sound in another version of the package."""


def marked(case: Case) -> object:
    return pytest.param(case, id=case.name)


@pytest.mark.hostile
@pytest.mark.parametrize("case", map(marked, CASES))
@pytest.mark.filterwarnings("ignore")
def test_case_is_taken_or_refused(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDEPD_MAX_GB", "2")
    with bounded(5, 400):
        assert crash_of(case.format, case.content) is None


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_has_a_seed_that_is_taken(format: str, tmp_path: Path) -> None:
    """Else all changes to it would be refused at the door."""
    seeds = [case for case in SEEDS if case.format == format]
    assert seeds
    for number, case in enumerate(seeds):
        (tmp_path / str(number)).mkdir()
        if case.name not in OLD:
            FORMATS[format].read(case.content, tmp_path / str(number))


@pytest.mark.parametrize("kind", ["bytes", *CHANGES])
def test_changes_come_from_the_seed_alone(kind: str) -> None:
    import random

    content = next(
        case.content
        for case in SEEDS
        if FORMATS[case.format].kind == kind or (kind == "jsonl" and case.format == "schema")
    )
    made = [[mutate(content, kind, random.Random(number)) for number in range(20)] for _ in range(2)]
    assert made[0] == made[1]
    assert sum(changed != content for changed in made[0]) > 15


def test_a_fault_becomes_a_case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that fails, one that ends its process and one that refuses.

    They make two new cases, and each is what did it.
    """
    import os
    import signal

    def fails(content: bytes, folder: Path) -> None:
        raise KeyError("a mistake")

    def dies(content: bytes, folder: Path) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr(formats, "FORMATS", {"schema": Format("json", fails), "toml": Format("text", dies)})
    monkeypatch.setattr(run, "FORMATS", formats.FORMATS)
    found = run.search(3, ["schema", "toml"], 7, tmp_path)
    notes = sorted(read_case(path).note for path in found)
    assert notes == ["KeyError in test_corpus.py:fails: 'a mistake'", "ended its process by signal 9"]


@pytest.mark.parametrize("content", [b"plain text\n", b"\xff\x00", b""])
def test_a_case_is_read_as_it_was_written(content: bytes, tmp_path: Path) -> None:
    case = read_case(write_case("npz", "why", content, folder=tmp_path))
    assert (case.format, case.note, case.content) == ("npz", "why", content)
