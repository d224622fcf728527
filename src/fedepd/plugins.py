"""What other packages add by name: methods, datasets, backbones and partitions, through entry points.

A ``Registry`` looks like a dict. It holds what this package has, and finds what others bring. Nothing of a
plug-in is imported before somebody asks for its name or for the whole list. A plug-in that cannot be used is
named in one warning and left out.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from contextvars import ContextVar
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar

from fedepd.errors import BadConfig
from fedepd.shown import sentence, shown

T = TypeVar("T")
OURSELVES = "fedepd"
NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}")
"""Names become folder names, options and cells of tables, so nothing else may be in them."""
MOST_PLUGINS = 500
"""Of one kind. More of them are no list that a person reads."""
log = logging.getLogger("fedepd.plugins")
_only: ContextVar[frozenset[str] | None] = ContextVar("the plug-ins that may run", default=None)


@contextmanager
def only(full_names: Collection[str]) -> Iterator[None]:
    """Inside this, no plug-in is imported or used but those named in full, as ``package.module.Class``.

    A federation's task names its method. It must not run at a site only because it is installed there.
    """
    before = _only.set(frozenset(full_names))
    try:
        yield
    finally:
        _only.reset(before)


@dataclass(frozen=True)
class Plugin:
    """One entry point: what it is called, and which package brings it."""

    name: str
    package: str
    module: str
    attribute: str
    """Empty where the entry point names nothing inside a module."""
    entry: EntryPoint

    @classmethod
    def of(cls, entry: EntryPoint) -> Plugin:
        try:
            module, attribute = entry.module, entry.attr
        except (AssertionError, AttributeError, ValueError):  # its value has another form
            module, attribute = "", ""
        return cls(entry.name, _package(entry), module, attribute, entry)

    @property
    def full_name(self) -> str:
        """``package.module.Class``: what an owner allows."""
        return f"{self.module}.{self.attribute}"

    @property
    def permitted(self) -> bool:
        allowed = _only.get()
        return allowed is None or self.full_name in allowed


def _package(entry: EntryPoint) -> str:
    try:
        dist = entry.dist
        return shown(f"{dist.name} {dist.version}" if dist is not None else "without a name")
    except Exception:  # metadata of a package that is installed badly
        return "without a name"


class Registry(Mapping[str, T], Generic[T]):
    """Things by name: our own, and those of entry points.

    Args:
        group: the entry points' group, e.g. ``fedepd.methods``.
        kind: what one of them is called in a sentence, e.g. ``method``.
        built_in: our own, by name. A plug-in cannot take such a name.
        fitted: makes the thing out of a name and what its entry point loads, or raises ``BadConfig``.
    """

    def __init__(
        self, group: str, kind: str, built_in: Mapping[str, T], fitted: Callable[[str, Any], T]
    ) -> None:
        self.group, self.kind, self.built_in = group, kind, dict(built_in)
        self._fitted = fitted
        self._known: dict[str, Plugin] | None = None
        self._loaded: dict[str, T | None] = {}

    def __getitem__(self, name: str) -> T:
        if name in self.built_in:
            return self.built_in[name]
        plugin = self.plugins()[name]
        if not plugin.permitted:
            raise BadConfig(
                f"{self.kind} '{name}' is of the package {plugin.package} and not allowed here; its owner"
                f" allows it by starting with '--allow {shown(plugin.full_name)}'"
            )
        if name not in self._loaded:
            self._loaded[name] = self._load(plugin)
        found = self._loaded[name]
        if found is None:
            raise KeyError(name)
        return found

    def __iter__(self) -> Iterator[str]:
        """Our own first, then the plug-ins that work and may run; this imports them."""
        yield from self.built_in
        yield from [name for name, plugin in self.plugins().items() if plugin.permitted and name in self]

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return f"Registry({self.group}: {', '.join(self.names())})"

    def names(self) -> list[str]:
        """All names, without importing anything; a plug-in among them may turn out not to work."""
        return [*self.built_in, *self.plugins()]

    def plugins(self) -> Mapping[str, Plugin]:
        """What entry points offer, by name. They are read once."""
        if self._known is None:
            self._known = self._offered()
        return self._known

    def origin(self, name: str) -> str:
        """Which package a name comes from."""
        return OURSELVES if name in self.built_in else self.plugins()[name].package

    def name_of(self, thing: T) -> str | None:
        """The name under which ``thing`` is known. Only plug-ins of its own package are imported to see."""
        for name, own in self.built_in.items():
            if own is thing:
                return name
        root = str(getattr(thing, "__module__", "")).partition(".")[0]
        for name, plugin in self.plugins().items():
            if plugin.permitted and plugin.module.partition(".")[0] == root and self.get(name) is thing:
                return name
        return None

    def allowed(self, full_names: Collection[str]) -> list[str]:
        """The names of the plug-ins that these full names stand for."""
        return [name for name, plugin in self.plugins().items() if plugin.full_name in full_names]

    def refresh(self) -> None:
        """Look for entry points again, e.g. after a package was installed beside a running notebook."""
        self._known = None
        self._loaded.clear()

    def _offered(self) -> dict[str, Plugin]:
        try:
            offered = {(each.name, each.value): each for each in entry_points(group=self.group)}
            plugins = [Plugin.of(offered[key]) for key in sorted(offered)]
        except Exception as fault:  # metadata of a package that is installed badly
            self._leave_out(f"no plug-in of the group {self.group} is used", _told(fault))
            return {}
        if len(plugins) > MOST_PLUGINS:
            self._leave_out(f"only {MOST_PLUGINS} plug-ins of {self.group} are used", "there are more")
        known: dict[str, Plugin] = {}
        names = [plugin.name for plugin in plugins]
        for plugin in plugins[:MOST_PLUGINS]:
            if wrong := self._name_fault(plugin, names):
                self._leave_out(self._called(plugin), wrong)
            else:
                known[plugin.name] = plugin
        return known

    def _name_fault(self, plugin: Plugin, names: list[str]) -> str | None:
        if not NAME.fullmatch(plugin.name):
            return (
                "its name must be lower-case letters, digits, '_' and '-', a letter first, at most 40;"
                " rename its entry point"
            )
        if plugin.name in self.built_in:
            return f"fedepd has a {self.kind} of that name; rename its entry point"
        if names.count(plugin.name) > 1:
            return "another package brings one of that name, too; install one of them"
        if not plugin.attribute:
            return "its entry point names no object; write it as package.module:NAME"
        return None

    def _load(self, plugin: Plugin) -> T | None:
        try:
            with redirect_stdout(sys.stderr):  # what a plug-in says while it is imported is no result
                found = plugin.entry.load()
            return self._fitted(plugin.name, found)
        except (Exception, SystemExit) as fault:
            self._leave_out(self._called(plugin), _told(fault))
            return None

    def _called(self, plugin: Plugin) -> str:
        return f"{self.kind} '{shown(plugin.name)}' of the package {plugin.package} is left out"

    @staticmethod
    def _leave_out(what: str, why: str) -> None:
        log.warning("%s", sentence(f"fedepd: {what}: {why}"))


def _told(fault: BaseException) -> str:
    if isinstance(fault, BadConfig):
        return str(fault)
    return f"{type(fault).__name__}: {shown(fault, 200)}; repair or remove that package"
