"""All regular expressions in the source, and inputs that are made from their structure."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import mainspring
from tests.support.growth import Pump

codes, parser = import_module("re._constants"), import_module("re._parser")
FUNCTIONS = {"compile", "match", "search", "fullmatch", "sub", "subn", "split", "findall", "finditer"}
REPEATS = (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT)
FEW = 12
"""A part that repeats at most so often is not pumped."""


@dataclass(frozen=True, slots=True)
class Found:
    """A pattern with the place where it is written."""

    place: str
    pattern: re.Pattern[Any]
    methods: frozenset[str] = frozenset(("search",))

    @property
    def calls(self) -> list[Any]:
        """How it is used: at the start of a text only, or anywhere in it."""
        anchored = [getattr(self.pattern, name) for name in ("match", "fullmatch") if name in self.methods]
        if self.methods <= {"match", "fullmatch"}:
            return anchored
        return [*anchored, lambda given: sum(1 for _ in self.pattern.finditer(given))]

    def __str__(self) -> str:
        return self.place


def all_patterns() -> Iterator[Found]:
    """Every call of a function of `re` with its pattern, in every module."""
    root = Path(mainspring.__file__).parent
    for module in pkgutil.walk_packages([str(root)], "mainspring."):
        if module.name.endswith("__main__"):
            continue
        path = root.joinpath(*module.name.split(".")[1:])
        file = path / "__init__.py" if module.ispkg else path.with_suffix(".py")
        source = file.read_text()
        if "import re\n" in source or "\nfrom re " in source:
            yield from _patterns(module.name, source)


def _patterns(name: str, source: str) -> Iterator[Found]:
    namespace = vars(importlib.import_module(name))
    tree = ast.parse(source)
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _is_re(node.func) and node.args:
            written = eval(compile(ast.Expression(node.args[0]), name, "eval"), namespace)
            flags = [n for n in ast.walk(node) if isinstance(n, ast.Attribute) and _is_flag(n)]
            value = 0
            for flag in flags:
                value |= int(getattr(re, flag.attr))
            methods = _methods(node, parents.get(node), source)
            yield Found(f"{name}:{node.lineno}", re.compile(written, value), methods)


def _methods(call: ast.Call, parent: ast.AST | None, source: str) -> frozenset[str]:
    """The methods by which a pattern is used; all, if that cannot be seen."""
    assert isinstance(call.func, ast.Attribute)
    if call.func.attr != "compile":
        return frozenset((call.func.attr,))
    if isinstance(parent, ast.Attribute):
        return frozenset((parent.attr,))
    if not isinstance(parent, ast.Assign) or not isinstance(parent.targets[0], ast.Name):
        return frozenset(FUNCTIONS)
    name = parent.targets[0].id
    where = source if name.startswith("_") else _all_source()
    return frozenset(re.findall(rf"\b{name}\.([a-z]+)\b", where)) & FUNCTIONS or frozenset(FUNCTIONS)


@cache
def _all_source() -> str:
    return "".join(path.read_text() for path in Path(mainspring.__file__).parent.rglob("*.py"))


def _is_re(func: ast.expr) -> bool:
    return (
        isinstance(func, ast.Attribute)
        and func.attr in FUNCTIONS
        and isinstance(func.value, ast.Name)
        and func.value.id == "re"
    )


def _is_flag(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id == "re" and node.attr.isupper()


def pumps(pattern: re.Pattern[Any], rng: random.Random, extra: int = 6) -> Iterator[Pump]:
    """Inputs that repeat what a repeated part matches, and end with what it does not; then random ones."""
    text = pattern.pattern.decode("latin-1") if isinstance(pattern.pattern, bytes) else pattern.pattern
    tree = parser.parse(text, pattern.flags & ~re.UNICODE if isinstance(pattern.pattern, bytes) else pattern.flags)
    characters = sorted(set("a0 \n{" + "".join(_sample(tree, rng) for _ in range(3))))
    for prefix, body in _repeated(tree, "", rng):
        for pump in {_sample(body, rng) for _ in range(3)}:
            if pump:
                for suffix in ("", "\0", "!\n"):
                    yield Pump(prefix, pump, suffix)
                    yield Pump("", prefix + pump, suffix)
    for _ in range(extra):
        pump = "".join(rng.choices(characters, k=rng.randint(1, 3)))
        yield Pump("".join(rng.choices(characters, k=rng.randint(0, 2))), pump, rng.choice(("", "\0", pump[:1])))


def _repeated(tree: Any, prefix: str, rng: random.Random) -> Iterator[tuple[str, Any]]:
    """The repeated parts of a parsed pattern, each with an example of what comes before it."""
    for op, argument in tree:
        if op in REPEATS:
            _, most, body = argument
            if most is codes.MAXREPEAT or most > FEW:
                yield prefix, body
            yield from _repeated(body, prefix, rng)
        elif op is codes.SUBPATTERN:
            yield from _repeated(argument[3], prefix, rng)
        elif op is codes.ATOMIC_GROUP:
            yield from _repeated(argument, prefix, rng)
        elif op is codes.BRANCH:
            for branch in argument[1]:
                yield from _repeated(branch, prefix, rng)
        elif op in (codes.ASSERT, codes.ASSERT_NOT):
            yield from _repeated(argument[1], prefix, rng)
        prefix += _sample([(op, argument)], rng)


def _sample(tree: Any, rng: random.Random) -> str:
    """A text that a parsed pattern matches, or nearly."""
    return "".join(_one(op, argument, rng) for op, argument in tree)


def _one(op: Any, argument: Any, rng: random.Random) -> str:
    if op is codes.LITERAL:
        return chr(argument)
    if op is codes.NOT_LITERAL:
        return "b" if argument != ord("b") else "c"
    if op is codes.ANY:
        return rng.choice("a ")
    if op is codes.IN:
        return _member(argument, rng)
    if op in REPEATS:
        least, most, body = argument
        count = max(least, min(1, most) if most is not codes.MAXREPEAT else 1)
        return "".join(_sample(body, rng) for _ in range(min(count, 40)))
    if op is codes.SUBPATTERN:
        return _sample(argument[3], rng)
    if op is codes.ATOMIC_GROUP:
        return _sample(argument, rng)
    if op is codes.BRANCH:
        return _sample(rng.choice(argument[1]), rng)
    return ""


def _member(members: Any, rng: random.Random) -> str:
    classes = {codes.CATEGORY_DIGIT: "7", codes.CATEGORY_SPACE: " ", codes.CATEGORY_WORD: "w"}
    if members[0][0] is codes.NEGATE:
        refused = re.compile("[" + "".join(re.escape(chr(a)) for o, a in members[1:] if o is codes.LITERAL) + "\\s]")
        return next(c for c in "ab0-./:~" if not refused.match(c))
    op, argument = rng.choice(members)
    if op is codes.RANGE:
        return chr(rng.randint(argument[0], argument[1]))
    return classes.get(argument, "x") if op is codes.CATEGORY else chr(argument)
