"""The file of kept scores: two programs lose nothing, and a damaged line is named."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from fedepd import folders
from fedepd.errors import BadConfig, BadData
from fedepd.reproduction.study import scores_file
from fedepd.reproduction.study.scores_file import (
    COLUMNS,
    Line,
    add_lines,
    as_text,
    read_scores,
    scored_blocks,
    this_version,
)

MakeLine = Callable[..., Line]
HEAD = f"# fedepd scores, format 1, of fedepd {this_version()}\n{','.join(COLUMNS)}\n"


def row(line: Line) -> str:
    return ",".join(line.values())


def test_a_file_is_made_and_read_again(make_line: MakeLine, tmp_path: Path) -> None:
    file = tmp_path / "new" / "kept.csv"
    assert read_scores(file) == {}
    assert add_lines(file, {}) == {}
    assert file.read_text() == HEAD
    line = make_line(1, ("personal",))
    assert add_lines(file, {line["cell"]: line}) == read_scores(file) == {line["cell"]: line}
    assert scored_blocks(line) == ["personal"]
    assert [path.name for path in file.parent.iterdir()] == ["kept.csv"]


def test_the_bytes_depend_on_no_order(make_line: MakeLine, tmp_path: Path) -> None:
    """Sorted by graph, method, preset and seed as a number: 2 before 10."""
    lines = [make_line(n, seed=str(n), dataset=f"d{n % 2}") for n in range(12)]
    whole = {line["cell"]: line for line in lines}
    for start in range(3):
        file = tmp_path / f"{start}.csv"
        for line in random.Random(start).sample(lines, len(lines)):
            add_lines(file, {line["cell"]: line})
        assert file.read_text() == as_text(whole)
    seeds = [text.split(",")[4] for text in as_text(whole).splitlines()[2:]]
    assert seeds == ["0", "2", "4", "6", "8", "10", "1", "3", "5", "7", "9", "11"]


def test_a_line_that_is_there_stays(make_line: MakeLine, tmp_path: Path) -> None:
    """So two machines that have trained one cell do not write over each other for ever."""
    first, second = make_line(1, seconds="1.00"), make_line(1, seconds="2.00")
    add_lines(tmp_path / "k", {first["cell"]: first})
    before = (tmp_path / "k").stat().st_mtime_ns
    assert add_lines(tmp_path / "k", {first["cell"]: second})[first["cell"]] == first
    assert (tmp_path / "k").stat().st_mtime_ns == before  # nothing new, so nothing is written


def test_another_program_that_writes_is_waited_for(
    make_line: MakeLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever holds the lock has added line 1 when line 2 comes. Threads share locks, so one is played."""
    tries: list[Path] = []
    claimed = folders.claimed

    def busy_once(lock: Path) -> object:
        tries.append(lock)
        if len(tries) == 1:
            (tmp_path / "k").write_text(as_text({"1": make_line(1)}))
            raise folders.Busy("held")
        return claimed(lock)

    monkeypatch.setattr(scores_file, "claimed", busy_once)
    line = make_line(2)
    assert len(add_lines(tmp_path / "k", {line["cell"]: line})) == 2
    assert len(read_scores(tmp_path / "k")) == len(tries) == 2
    tries.clear()
    monkeypatch.setattr(scores_file, "PATIENCE", -1.0)
    with pytest.raises(BadConfig, match="held"):
        add_lines(tmp_path / "k", {})


@pytest.mark.hostile
@pytest.mark.parametrize(
    ("column", "text", "sentence"),
    [
        ("cell", "../../etc/pwd", "line 3 .*'cell' is '../../etc/pwd', not 12 hexadecimal digits"),
        ("cell", "0" * 3999, "line 3 .* has more than 4,000 characters"),
        ("method", "=1+1", "'method' is '=1\\+1', not a name"),
        ("dataset", "\x1b[31m", r"'dataset' is '\?\[31m', not a name"),
        ("seed", "-1", "'seed' is '-1', not a whole number"),
        ("seed", "9" * 30, "'seed' is '9+', not a whole number"),
        ("clients", "", "'clients' is '', not a whole number"),
        ("seconds", "inf", "'seconds' is 'inf'"),
        ("seconds", "1e9", "'seconds' is '1e9'"),
        ("bytes_up", "-5", "'bytes_up' is '-5'"),
        ("weights_sha256", "<script>", "'weights_sha256' is '<script>'"),
        ("global.pooled.bacc", "1.5", "'global.pooled.bacc' is '1.5', not a share from 0 to 1, or nan"),
        ("global.pooled.bacc", "NaN", "'global.pooled.bacc' is 'NaN'"),
        ("global.pooled.bacc", "", "has 'global.round' but no 'global.pooled.bacc'"),
        ("global.client_mean.tail_acc", "", "but no 'global.client_mean.tail_acc'"),
        ("adapted.pooled.tail_acc", ".5", "has 'adapted.pooled.tail_acc' but no 'adapted.round'"),
        ("global.right", "41", "'global.right' is more than the tested nodes"),
        ("other.global.right", "3", "has 'other.global.right' beside the same round of both selections"),
        ("global.round", "0", "'global.round' is '0', not the number of a round"),
        ("adapted_used", "yes", "'adapted_used' and another in 'adapted.round'"),
        ("preferred", "adapted", "prefers 'adapted', of which it has no scores"),
        ("preferred", "best", "'preferred' is 'best', not one of global, personal, adapted"),
        ("adapted_used", "maybe", "'adapted_used' is 'maybe', not yes or no"),
    ],
)
def test_a_hostile_line(column: str, text: str, sentence: str, make_line: MakeLine, tmp_path: Path) -> None:
    line = make_line(1, other__global__round="5")
    (tmp_path / "k").write_text(HEAD + row({**line, column: text}) + "\n")
    with pytest.raises(BadData, match=sentence) as refusal:
        read_scores(tmp_path / "k")
    assert str(refusal.value).isprintable()


@pytest.mark.hostile
@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "does not begin as a file of kept scores"),
        (b"{}", "does not begin as a file of kept scores"),
        (HEAD.splitlines()[0].encode(), "line 2 .* does not name the columns"),
        (HEAD.replace("cell", "cells").encode(), "line 2 .* does not name the columns"),
        (
            HEAD.replace("format 1", "format 2").encode(),
            "has format 2, and this version of fedepd reads format 1",
        ),
        (
            HEAD.replace(f"of fedepd {this_version()}", "of fedepd 9.9.9").encode(),
            f"has scores of fedepd 9.9.9, and this is fedepd {this_version()}, whose numbers may differ",
        ),
        (HEAD.encode() + b"\n\n", f"line 3 .* has 1 columns, not {len(COLUMNS)}"),
        (HEAD.encode() + b"a,b\n", f"line 3 .* has 2 columns, not {len(COLUMNS)}"),
        (HEAD.encode() + b"\xff\xfe\n", "line 3 .* holds bytes that are no plain text"),
        (HEAD.encode() + b"\n" * 12, "has more than 9 cells"),
        (HEAD.encode() + b"\0" * 9999, "has more than 9,999 bytes"),
    ],
    ids=range(11),
)
def test_a_hostile_file(
    content: bytes, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scores_file, "MAX_BYTES", 9999)
    monkeypatch.setattr(scores_file, "MAX_CELLS", 9)
    (tmp_path / "k").write_bytes(content)
    with pytest.raises(BadData, match=sentence):
        read_scores(tmp_path / "k")
    before = (tmp_path / "k").read_bytes()
    with pytest.raises(BadData, match=sentence):
        add_lines(tmp_path / "k", {})
    assert (tmp_path / "k").read_bytes() == before


def test_a_cell_twice(make_line: MakeLine, tmp_path: Path) -> None:
    text = row(make_line(1))
    (tmp_path / "k").write_text(f"{HEAD}{text}\n{text}\n")
    with pytest.raises(BadData, match=r"line 4 of .* has the cell 000000000001 again; remove one of the two"):
        read_scores(tmp_path / "k")


def test_a_folder_in_its_place(tmp_path: Path) -> None:
    with pytest.raises(BadData, match=r"cannot be read \(it is not a regular file"):
        add_lines(tmp_path, {})
