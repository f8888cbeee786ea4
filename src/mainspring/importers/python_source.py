"""Values in Python source, read from its syntax tree. Nothing is imported or executed.

`read` returns literals as Python values, names of constants that the module assigns once as their values, and calls as
`Call`. Everything else is `Unknown`, with the text of the expression.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import islice
from typing import Any

from mainspring.domain.errors import Invalid, Problem
from mainspring.importers.plan import MAX_DEPTH, SourceFile, check_size

MAX_CHARS = 150_000
"""The parser of Python takes about a hundred bytes of memory per character."""
MAX_NODES = 200_000
MAX_READS = 2 * MAX_NODES
_MAX_NAMES = 20
"""Constants that refer to constants."""
_UNITS = {"days", "seconds", "microseconds", "milliseconds", "minutes", "hours", "weeks"}
_DELTA_ORDER = ("days", "seconds", "microseconds", "milliseconds", "minutes", "hours", "weeks")


@dataclass(frozen=True, slots=True)
class Call:
    """A call: the last name of the function, its arguments as values, and its line."""

    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(hash=False)
    line: int = 0


@dataclass(frozen=True, slots=True)
class Unknown:
    """A value that only running the program could give."""

    text: str
    line: int


class Module:
    """The syntax tree of a file, its nodes, and its constants."""

    def __init__(self, file: SourceFile) -> None:
        check_size(file)
        self.file = file
        self.tree = _parse(file)
        self.nodes = _nodes(file, self.tree)
        self.constants = self._constants()
        self._reads = 0
        self._imports = {
            alias.asname or alias.name: f"{node.module}:{alias.name}"
            for node in self.nodes
            if isinstance(node, ast.ImportFrom) and node.module
            for alias in node.names
        }

    def read(self, node: ast.AST | None, depth: int = 0) -> Any:
        """The value of an expression."""
        # Constants that list constants could stand for more values than the file has.
        self._reads += 1
        if depth > MAX_DEPTH or self._reads > MAX_READS:
            return self._unknown(node)
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name):
                known = self.constants.get(name)
                return self._unknown(node) if known is None or depth > _MAX_NAMES else self.read(known, depth + 1)
            case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Set(elts=items):
                return [self.read(item, depth + 1) for item in items]
            case ast.Dict(keys=keys, values=values):
                return {
                    key.value: self.read(value, depth + 1)
                    for key, value in zip(keys, values, strict=True)
                    if isinstance(key, ast.Constant) and isinstance(key.value, str)
                }
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
                return -number
            case ast.BinOp():
                return self._arithmetic(node, depth)
            case ast.Call():
                return self._call(node, depth)
        return self._unknown(node)

    def function_of(self, node: ast.AST) -> str:
        """A function as a Python task names it: by the module that the file imports it from, or by the file itself."""
        if isinstance(node, ast.Attribute):
            module = dotted(node.value)
            return f"{module}:{node.attr}" if module else ""
        name = name_of(node)
        stem = self.file.name.rpartition("/")[2].removesuffix(".py")
        return self._imports.get(name) or f"{stem if stem.isidentifier() else 'module'}:{name}"

    def calls(self) -> Iterator[ast.Call]:
        """Every call of the file, in the order of the text."""
        found = [node for node in self.nodes if isinstance(node, ast.Call)]
        return iter(sorted(found, key=lambda node: (node.lineno, node.col_offset)))

    def _constants(self) -> dict[str, ast.expr]:
        found: dict[str, ast.expr] = {}
        changed: set[str] = set()
        for node in self.nodes:
            if isinstance(node, ast.Assign):
                targets, value = node.targets, node.value
            elif isinstance(node, ast.AnnAssign) and node.value is not None:
                targets, value = [node.target], node.value
            elif isinstance(node, ast.AugAssign):
                targets, value = [node.target], node.value
                changed.update(target.id for target in targets if isinstance(target, ast.Name))
            else:
                continue
            for target in targets:
                if isinstance(target, ast.Name):
                    changed.update({target.id} if target.id in found else ())
                    found[target.id] = value
        return {name: value for name, value in found.items() if name not in changed}

    def _arithmetic(self, node: ast.BinOp, depth: int) -> Any:
        left, right = self.read(node.left, depth + 1), self.read(node.right, depth + 1)
        if _is_number(left) and _is_number(right) and max(abs(left), abs(right)) < 10**12:
            match node.op:
                case ast.Mult():
                    return left * right
                case ast.Add():
                    return left + right
                case ast.Sub():
                    return left - right
                case ast.Div() if right:
                    return left / right
        if isinstance(left, str) and isinstance(right, str) and isinstance(node.op, ast.Add):
            return (left + right)[:MAX_CHARS]
        return self._unknown(node)

    def _call(self, node: ast.Call, depth: int) -> Any:
        name = name_of(node.func)
        args = tuple(self.read(argument, depth + 1) for argument in node.args)
        kwargs = {keyword.arg: self.read(keyword.value, depth + 1) for keyword in node.keywords if keyword.arg}
        if name == "timedelta" and (delta := _timedelta(args, kwargs)) is not None:
            return delta
        if name == "duration" and not args and (delta := _timedelta((), kwargs)) is not None:
            return delta
        return Call(name, args, kwargs, node.lineno)

    def _unknown(self, node: ast.AST | None) -> Unknown:
        segment = "" if node is None else type(node).__name__
        if isinstance(node, ast.Name):
            segment = node.id
        elif isinstance(node, ast.Attribute):
            segment = f"….{node.attr}"
        return Unknown(segment, getattr(node, "lineno", 1))


def name_of(node: ast.AST) -> str:
    """The last name of a dotted expression: `b` of `a.b`."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def dotted(node: ast.AST) -> str:
    """A dotted expression as text; empty if it is something else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


def _parse(file: SourceFile) -> ast.Module:
    if len(file.text) > MAX_CHARS:
        raise Invalid(
            f"{file.name} has {len(file.text):,} characters; the limit for Python is {MAX_CHARS:,}",
            code="source_too_large",
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(file.text)
    except SyntaxError as error:
        where = f"{file.name}:{error.lineno or 1}"
        problem = Problem(where, f"invalid Python: {error.msg}", "import a file that Python 3 accepts")
        raise Invalid(f"{where}: {problem.message}", code="unreadable_source", problems=(problem,)) from None
    except (ValueError, RecursionError, MemoryError) as error:
        reason = str(error) or "nested too deep"
        raise Invalid(f"{file.name}: invalid Python: {reason}", code="unreadable_source") from None
    return tree


def _nodes(file: SourceFile, tree: ast.Module) -> list[ast.AST]:
    """Every node of a syntax tree. One walk is kept, because it takes as long as the parser."""
    nodes = list(islice(ast.walk(tree), MAX_NODES + 1))
    if len(nodes) > MAX_NODES:
        raise Invalid(f"{file.name} has too many expressions to be read", code="source_too_large")
    return nodes


def _timedelta(args: tuple[Any, ...], kwargs: dict[str, Any]) -> timedelta | None:
    given = {**dict(zip(_DELTA_ORDER, args, strict=False)), **kwargs}
    if given.keys() - _UNITS or not all(_is_number(value) for value in given.values()) or len(args) > len(_UNITS):
        return None
    try:
        return timedelta(**given)
    except OverflowError:
        return None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
