"""The Python functions that a worker has, as it states them. Pure.

A statement is a list of entries:

| entry | stands for |
|---|---|
| `report` | the declared job of that name |
| `shop:pay` | that function of a loaded module |
| `shop.tools:*` | every function of a module that is only imported when one of them is called |
| `shop.*` | every function of every module below a package, if they are too many to list |
| `*` | every function |
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from mainspring.domain.errors import invalid
from mainspring.domain.suggestion import closest
from mainspring.domain.task import FUNCTION, MAX_FUNCTION_CHARS

MAX_FUNCTIONS = 2_000
"""Entries of one statement."""
MAX_MODULES = 500
ANY_FUNCTION = "*"
_MANY = re.compile(r"(?:[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*(?::|\.))?\*\Z")


@dataclass(frozen=True, slots=True)
class FunctionSet:
    """What a worker states, with the versions of its modules. Equal statements have equal ids and are stored once."""

    set_id: bytes
    entries: frozenset[str] = field(compare=False)
    modules: Mapping[str, str] = field(default_factory=dict, compare=False)

    def has(self, function: str) -> bool:
        if function in self.entries or ANY_FUNCTION in self.entries:
            return True
        module, colon, _ = function.partition(":")
        if not colon:
            return False
        if f"{module}:*" in self.entries:
            return True
        while module:
            module = module.rpartition(".")[0]
            if module and f"{module}.*" in self.entries:
                return True
        return False

    def closest(self, function: str) -> str | None:
        """Return the function with the most similar name."""
        return closest(function, sorted(entry for entry in self.entries if not entry.endswith("*")), cutoff=0.7)


def function_set(entries: Iterable[str], modules: Mapping[str, str] | None = None) -> FunctionSet:
    found, versions = frozenset(entries), dict(sorted((modules or {}).items()))
    text = "\n".join([*sorted(found), *(f"{name} = {version}" for name, version in versions.items())])
    return FunctionSet(hashlib.sha256(text.encode()).digest(), found, versions)


def check_entries(entries: Sequence[str], modules: Mapping[str, str]) -> None:
    """Refuse a statement with anything else in it."""
    for place, entry in enumerate(entries):
        if not FUNCTION.match(entry) and not _MANY.match(entry):
            message = f"{entry!r} is not a function"
            raise invalid(f"/functions/{place}", message, hint="such as shop:pay, shop:*, shop.* or the name of a job")
    for name, version in modules.items():
        if not name.isprintable() or not version.isprintable():
            raise invalid("/modules", f"{name!r} or its version is not a line of text", hint="leave it out")


NO_FUNCTIONS = function_set(())
"""Of a worker that has not stated its functions yet, but will."""


def bounded(by_module: Mapping[str, Iterable[str]], names: Iterable[str] = ()) -> list[str]:
    """Return at most MAX_FUNCTIONS entries for the names of functions in each module, and for declared jobs.

    If there are more, modules are stated as a whole; then packages; then everything.
    """
    exact = {module: sorted(set(members)) for module, members in by_module.items()}
    declared = sorted(set(names))
    for form in (_every_function, _every_module, _every_package):
        found = sorted({*declared, *form(exact)})
        if len(found) <= MAX_FUNCTIONS and all(len(entry) <= MAX_FUNCTION_CHARS for entry in found):
            return found
    return [ANY_FUNCTION]


def _every_function(by_module: Mapping[str, Iterable[str]]) -> list[str]:
    return [f"{module}:{member}" for module, members in by_module.items() for member in members]


def _every_module(by_module: Mapping[str, Iterable[str]]) -> list[str]:
    return [f"{module}:*" for module in by_module]


def _every_package(by_module: Mapping[str, Iterable[str]]) -> list[str]:
    roots = {module.partition(".")[0] for module in by_module}
    return [entry for root in roots for entry in (f"{root}:*", f"{root}.*")]
