"""The first line of a report: how much is found of the rarest class, and which differences can be told."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan

import numpy as np

from fedepd.longtail import class_order
from fedepd.report.against import own, verdicts
from fedepd.report.decisions import class_names
from fedepd.report.numbers import Floats, mean_std
from fedepd.report.paired import FEWEST_PAIRS, holm, in_common, paired_p
from fedepd.report.runs import Group, Run, by_dataset
from fedepd.shown import listed, shown

MANY = 10
"""Up to so many classes the line is about the rarest one. Of more it is about the tail: one class of many
has too few test nodes to speak for a run."""
NAMED = 4
"""Most methods whose shares stand in the line."""
SPELLED = 2
"""Of so many other classes the line says who is ahead of whom; of more it only names them."""
SURE = 0.05
COMMON = "over the seeds that both have"
"""Said where another one is ahead than by the mean over all seeds: tests pair the seeds in common."""
UNSCORED = "No test node was scored in these runs, so nothing can be said about classes."
Classes = Sequence[int]


@dataclass(frozen=True)
class Answer:
    """What a page is read for."""

    first: str
    """One sentence."""
    more: str
    """What else was found, and how it was measured. May be empty."""


def answers(groups: Sequence[Group]) -> list[Answer]:
    """One for each graph."""
    blocks = by_dataset(groups)
    found = [answer(block) for block in blocks]
    if len(blocks) == 1:
        return found
    names = [shown(block[0].first.dataset["name"]) for block in blocks]
    return [Answer(f"On {name}: {each.first}", each.more) for name, each in zip(names, found, strict=True)]


def answer(groups: Sequence[Group]) -> Answer:
    """What the runs on one graph say.

    Where a method is held against something, that was the question, so its answer comes first.
    """
    held = verdicts(groups)
    classes = _about_classes([each for each in own(groups) or groups if _scored(each)])
    if not held:
        return classes
    (first, *rest), *others = held
    return Answer(first, " ".join([*rest, *itertools.chain(*others), classes.first, classes.more]))


def _scored(each: Group) -> bool:
    return all(run.scored for run in each.runs)


def _about_classes(groups: Sequence[Group]) -> Answer:
    asked = _Asked.of(groups) if groups else None
    if asked is None:
        return Answer(UNSCORED, "")
    return _one(groups[0], asked) if len(groups) == 1 else _several(groups, asked)


@dataclass(frozen=True)
class _Asked:
    """Which classes the line is about."""

    rare: list[int]
    """The rarest class, or the tail."""
    others: dict[str, list[int]]
    """All other classes that were tested, each alone, or the other tiers. By what they are called."""
    words: str
    """What ``rare`` is called."""
    names: list[str]
    tested: list[int]
    """The classes with test nodes in every run."""

    @classmethod
    def of(cls, groups: Sequence[Group]) -> _Asked | None:
        """None if no class was tested in all runs."""
        run, everyone = groups[0].first, [run for each in groups for run in each.runs]
        order = class_order(run.partition["class_sizes"])
        nodes = np.min([_nodes(each) for each in everyone], axis=0)  # [C]
        tested = [c for c in order if nodes[c]]
        if not tested:
            return None
        names = _called(run)
        tiers = {name: [c for c in members if c in tested] for name, members in run.summary["tiers"].items()}
        if len(order) > MANY and len(tiers["tail"]) > 1:
            rare = tiers.pop("tail")
            others = {f"the {name} classes": members for name, members in tiers.items() if members}
            words = f"the {len(rare)} rarest classes"
        else:
            rare, others = tested[-1:], {names[c]: [c] for c in tested[:-1]}
            rarest = "the rarer class" if len(order) == 2 else "the rarest class"
            with_nodes = "" if rare[0] == order[-1] else " with test nodes"
            words = f"{names[rare[0]]}, {rarest}{with_nodes}"
        counts = [int(_nodes(each)[rare].sum()) for each in everyone]
        mean = " on average" if len(rare) > 1 else ""
        return cls(rare, others, f"{words} ({_range(counts, 'test node')}){mean}", names, tested)


def _called(run: Run) -> list[str]:
    """What the classes are called in a sentence."""
    return [f"class {name}" if name.isdigit() else f"'{name}'" for name in class_names(run)]


def _range(counts: Sequence[int], what: str) -> str:
    low, high = min(counts), max(counts)
    return f"{low if low == high else f'{low} to {high}'} {what}{'' if high == 1 else 's'}"


def _nodes(run: Run) -> Floats:
    """Test nodes of each class, [C]."""
    counts: Floats = run.confusions[f"{run.headline}_test"].sum((0, 2)).astype(np.float64)
    return counts


def _share(run: Run, classes: Classes) -> float:
    """The share of a class that is found, in percent: the mean over those of the classes with test nodes."""
    right = run.confusions[f"{run.headline}_test"].sum(0).diagonal()
    nodes = _nodes(run)
    known = [100 * float(right[c] / nodes[c]) for c in classes if nodes[c]]
    return sum(known) / len(known) if known else float("nan")


def _mean(each: Group, classes: Classes) -> float:
    return mean_std(_share(run, classes) for run in each.runs)[0]


def _percent(value: float) -> str:
    """Never 0 or 100 where something or not everything was found."""
    if 0 < value < 0.5:
        return "under 1 %"
    return "over 99 %" if 99.5 <= value < 100 else f"{value:.0f} %"


# --- one method ---------------------------------------------------------------------------------------------


def _one(each: Group, asked: _Asked) -> Answer:
    found = f"{each.label} finds {_percent(_mean(each, asked.rare))} of {asked.words}"
    if len(asked.tested) == 2 and len(asked.others) == 1:
        ((name, classes),) = asked.others.items()
        first = f"{found}, and {_percent(_mean(each, classes))} of {name}."
    else:
        whole = _percent(mean_std(100 * run.metric("bacc") for run in each.runs)[0])
        mean = " on average" if len(asked.rare) == 1 else ""
        first = f"{found}, and {whole} of all classes{mean}{_missed(each, asked)}."
    return Answer(first, _measured([each]))


def _missed(each: Group, asked: _Asked) -> str:
    """What is missed most."""
    shares = {c: _mean(each, [c]) for c in asked.tested}
    nothing = [asked.names[c] for c, share in shares.items() if share == 0]
    if len(nothing) > 1:
        return f"; it finds nothing of {len(nothing)} classes: {listed(nothing, 3)}"
    worst = min(reversed(asked.tested), key=shares.__getitem__)
    if len(asked.tested) == 1:
        return ""
    if [worst] == list(asked.rare):
        return "; no class is missed more than the rarest"
    return f"; the class that it misses most is {asked.names[worst]} ({_percent(shares[worst])})"


def _measured(groups: Sequence[Group]) -> str:
    counts = [len(each.runs) for each in groups]
    over = f", mean over {_range(counts, 'seed')}" if max(counts) > 1 else ""
    return f"Shares of test nodes{over}."


# --- several methods ----------------------------------------------------------------------------------------


def _several(groups: Sequence[Group], asked: _Asked) -> Answer:
    shares = {each.label: _mean(each, asked.rare) for each in groups}
    ordered = sorted(groups, key=lambda each: -shares[each.label])
    first, *rest = [f"{_percent(shares[each.label])}" for each in ordered]
    most = len(ordered) if len(ordered) <= NAMED else NAMED - 1
    lead = [f"{ordered[0].label} finds {first} of {asked.words}"]
    lead += [f"{each.label} {text}" for each, text in zip(ordered[1:most], rest, strict=False)]
    if most < len(ordered):
        low, high = rest[-1], rest[most - 1]
        lead.append(f"the other {len(ordered) - most} {high if low == high else f'{low} to {high}'}")
    seeds = _common_seeds(ordered)
    if seeds < FEWEST_PAIRS:
        why = {0: "without a seed in common", 1: "with one seed"}.get(seeds, f"with {seeds} seeds")
        said = f"{', '.join(lead)}; {why} it cannot be told whether that is chance."
        return Answer(said, _measured(ordered))
    tests = _Tests.of(ordered, asked)
    told = (_two if len(ordered) == 2 else _more)(ordered, tests, asked)
    counts = [f"{tests.first} {'test' if tests.first == 1 else 'tests'} for {_short(asked)}"]
    counts += [f"{tests.second} for the others"] if tests.second else []
    how = (
        "Told apart: by 95 % t intervals, paired by seed, with Holm's correction over "
        f"{', '.join(counts)} and {tests.first} for the mean of all classes."
    )
    return Answer(f"{', '.join(lead)}; {told}.", f"{_measured(ordered)} {how}")


def _short(asked: _Asked) -> str:
    return asked.names[asked.rare[0]] if len(asked.rare) == 1 else "the rarest classes"


def _common_seeds(groups: Sequence[Group]) -> int:
    """The most seeds that any two have in common."""
    seeds = [{run.seed for run in each.runs} for each in groups]
    return max(len(one & other) for one, other in itertools.combinations(seeds, 2))


Told = dict[tuple[int, int], int]
"""Places of two methods -> 1 if the first is ahead, -1 if it is behind. Pairs that cannot be told are left
out."""


@dataclass(frozen=True)
class _Tests:
    """What can be told.

    Choice: the rarest class is the question, so it is tested by itself, with Holm's correction over all pairs
    of methods. All other classes are a second family of tests, and the mean of all classes is a third. The
    leader is not known beforehand, so its pairs alone would be too few to correct for.
    """

    rare: Told
    others: dict[str, Told]
    """By what the classes are called; only those on which something can be told."""
    whole: Told
    """On the mean of all classes."""
    first: int
    second: int
    """How many tests the first two families have. The third has as many as the first."""

    @classmethod
    def of(cls, groups: Sequence[Group], asked: _Asked) -> _Tests:
        (rare,), first = _family(groups, [asked.rare])
        found, second = _family(groups, list(asked.others.values()))
        others = {name: told for name, told in zip(asked.others, found, strict=True) if told}
        (whole,), _ = _family(groups, [asked.tested])
        return cls(rare, others, whole, first, second)


def _family(groups: Sequence[Group], parts: Sequence[Classes]) -> tuple[list[Told], int]:
    """For each part of the classes what can be told, and how many tests were made in all."""
    pairs = list(itertools.combinations(range(len(groups)), 2))
    found = [_tested(groups[i], groups[j], classes) for classes in parts for i, j in pairs]
    sure = [p < SURE for p in holm([p for p, _ in found])]
    signs = [(1 if ahead > 0 else -1) if told else 0 for told, (_, ahead) in zip(sure, found, strict=True)]
    told = [
        {pair: sign for pair, sign in zip(pairs, signs[start : start + len(pairs)], strict=True) if sign}
        for start in range(0, len(signs), len(pairs))
    ]
    return told, sum(not isnan(p) for p, _ in found)


def _tested(one: Group, other: Group, classes: Classes) -> tuple[float, float]:
    """The p-value, and how far the first is ahead.

    Choice: the spread over seeds counts as at least one test node. Three seeds with three test nodes each
    often differ by the same share, and without a spread any difference would be told.
    """
    mine, theirs = ({run.seed: _share(run, classes) for run in each.runs} for each in (one, other))
    seeds = sorted(mine.keys() & theirs.keys())
    a, b = in_common([mine[seed] for seed in seeds], [theirs[seed] for seed in seeds])
    fewest = min(float(_nodes(run)[c]) for each in (one, other) for run in each.runs for c in classes)
    difference = a - b
    return paired_p(difference, 100 / (len(classes) * max(fewest, 1.0))), float(difference.sum())


def _rest(asked: _Asked, but: int = 0) -> str:
    """What the other classes are called, without those of them that were named."""
    if len(asked.rare) > 1:
        return "the other classes"
    left = len(asked.others) - but
    return "the other class" if left == 1 else f"the other {left} classes"


def _overall(groups: Sequence[Group], tests: _Tests, asked: _Asked) -> str:
    """What the mean of all classes tells where no part of them does."""
    part = "class" if len(asked.rare) == 1 else "tier"
    beaten: dict[int, list[str]] = {}
    for (i, j), sign in tests.whole.items():
        one, other = (i, j) if sign > 0 else (j, i)
        beaten.setdefault(one, []).append(f"{groups[other].label} ({_whole(groups[other], asked)})")
    if not beaten:
        return f"neither a single {part} nor the mean of all classes tells them apart"
    best = max(beaten, key=lambda place: len(beaten[place]))
    ahead = f"{groups[best].label} ({_whole(groups[best], asked)})"
    return (
        f"no single {part} tells them apart, but on the mean of all classes {ahead} is ahead of "
        f"{listed(beaten[best], NAMED)}"
    )


def _whole(each: Group, asked: _Asked) -> str:
    return _percent(_mean(each, asked.tested))


def _two(groups: Sequence[Group], tests: _Tests, asked: _Asked) -> str:
    """What can be told of two methods."""
    crossed = f"{COMMON}, {groups[1].label} is ahead there; " if tests.rare.get((0, 1)) == -1 else ""
    if not tests.others:
        if tests.rare:
            apart = f"on {_rest(asked)} they cannot be told apart" if asked.others else "that can be told"
            return f"{crossed}{apart}"
        return _overall(groups, tests, asked)
    ahead: dict[int, list[str]] = {1: [], -1: []}
    for name, told in tests.others.items():
        ahead[told[0, 1]].append(name)
    lists = zip(groups, ahead.values(), strict=True)
    who = " and ".join(f"{each.label} is ahead on {listed(names, NAMED)}" for each, names in lists if names)
    there = crossed if tests.rare else "there they cannot be told apart, but "
    left = len(asked.others) - len(tests.others)
    return f"{there}{who}" + (f"; on {_rest(asked, len(tests.others))} nothing can be told" if left else "")


def _more(groups: Sequence[Group], tests: _Tests, asked: _Asked) -> str:
    """What can be told of more than two, the first of which has found most of the rarest class."""
    behind, crossed, level = (
        [each.label for j, each in enumerate(groups[1:], start=1) if tests.rare.get((0, j), 0) == sign]
        for sign in (1, -1, 0)
    )
    if not tests.rare and not tests.others:
        return _overall(groups, tests, asked)
    if not tests.rare:
        text = "no two of them can be told apart there"
    elif len(level) == len(groups) - 1:
        text = f"{groups[0].label} cannot be told from any other there"
    else:
        found = [f"is ahead of {listed(behind, NAMED)} there"] if behind else []
        found += [f"{COMMON} is behind {listed(crossed, NAMED)} there"] if crossed else []
        found += [f"cannot be told from {listed(level, NAMED)}"] if level else []
        text = f"{groups[0].label} {', and '.join(found)}"
    if not asked.others:
        return text
    if not tests.others:
        return f"{text}; on {_rest(asked)} no two can be told apart"
    if len(tests.others) > SPELLED:
        return f"{text}; some of them can be told apart on {_joined(list(tests.others))}"
    told = "; ".join(f"on {name} {_ahead(groups, each)}" for name, each in tests.others.items())
    return f"{text}; {told}"


def _ahead(groups: Sequence[Group], told: Told) -> str:
    """Who is ahead of whom. Of several winners and losers, the one that is ahead of most is named."""
    pairs = [(i, j) if sign > 0 else (j, i) for (i, j), sign in told.items()]
    winners, losers = (list(dict.fromkeys(places)) for places in zip(*pairs, strict=True))
    if len(losers) > 1:
        winners = [max(winners, key=lambda place: sum(place == won for won, _ in pairs))]
        losers = [lost for won, lost in pairs if won == winners[0]]
    ahead, behind = (_joined([groups[place].label for place in places]) for places in (winners, losers))
    return f"{ahead} {'is' if len(winners) == 1 else 'are'} ahead of {behind}"


def _joined(names: Sequence[str]) -> str:
    """``a, b and c``, or the first of many."""
    if len(names) > NAMED:
        return listed(names, NAMED)
    *before, last = names
    return f"{', '.join(before)} and {last}" if before else last
