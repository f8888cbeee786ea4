"""Dependencies between the tasks of a DAG: `a >> [b, c]`, `a << b`, `chain(…)`, `set_upstream` and `set_downstream`."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Mapping, Sequence

from mainspring.importers.plan import Unsupported
from mainspring.importers.python_source import name_of

MAX_EDGES = 20_000
Edge = tuple[str, str]


def read_edges(node: ast.expr, variables: Mapping[str, str]) -> list[Edge]:
    """The edges of one statement, as pairs of task ids: first the earlier one. Raises Unsupported."""
    edges: list[Edge] = []
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.RShift | ast.LShift):
        _shifts(node, variables, edges)
    elif isinstance(node, ast.Call):
        _call(node, variables, edges)
    return edges


def _shifts(node: ast.BinOp, variables: Mapping[str, str], edges: list[Edge]) -> None:
    # `a >> b >> c` is nested on the left; a loop instead of recursion, since chains can be long.
    chain: list[tuple[bool, ast.expr]] = []
    left: ast.expr = node
    while isinstance(left, ast.BinOp) and isinstance(left.op, ast.RShift | ast.LShift):
        chain.append((isinstance(left.op, ast.RShift), left.right))
        left = left.left
    before = _tasks(left, variables)
    for is_forward, right in reversed(chain):
        after = _tasks(right, variables)
        _connect(before, after, edges) if is_forward else _connect(after, before, edges)
        before = after


def _call(node: ast.Call, variables: Mapping[str, str], edges: list[Edge]) -> None:
    name = name_of(node.func)
    if name in ("chain", "cross_downstream"):
        groups = [_tasks(argument, variables) for argument in node.args]
        for before, after in itertools.pairwise(groups):
            if name == "chain" and len(before) == len(after) > 1:
                edges.extend(zip(before, after, strict=True))
            else:
                _connect(before, after, edges)
    elif name in ("set_upstream", "set_downstream") and isinstance(node.func, ast.Attribute) and node.args:
        own, others = _tasks(node.func.value, variables), _tasks(node.args[0], variables)
        _connect(others, own, edges) if name == "set_upstream" else _connect(own, others, edges)


def _connect(before: Sequence[str], after: Sequence[str], edges: list[Edge]) -> None:
    if len(edges) + len(before) * len(after) > MAX_EDGES:
        raise Unsupported(f"more than {MAX_EDGES:,} dependencies in one statement", "split the DAG")
    edges.extend((one, other) for one in before for other in after)


def _tasks(node: ast.expr, variables: Mapping[str, str]) -> list[str]:
    if isinstance(node, ast.Name):
        return [variables[node.id]] if node.id in variables else []
    if isinstance(node, ast.List | ast.Tuple):
        return [task for item in node.elts for task in (_tasks(item, variables) if isinstance(item, ast.Name) else [])]
    return []
