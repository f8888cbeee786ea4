"""Every named query has a unique name, a purpose and exactly one caller."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tools.tree import SOURCE

STORE = SOURCE / "store"
_NAME = re.compile(r"^-- name: *(\S+)\s*\n(.*)$", re.MULTILINE)


def named_queries(sql: str) -> list[tuple[str, str]]:
    """Each query's name and the line below it, which states its purpose."""
    return [(match[1], match[2]) for match in _NAME.finditer(sql)]


def called(source: str) -> Iterator[str]:
    """What a module calls: `q("name")`, `queries.name`; where it calls `q(variable)`, each string it has."""
    nodes = list(ast.walk(ast.parse(source)))
    by_table = any(isinstance(node, ast.Call) and is_lookup(node.func, node.args) for node in nodes)
    for node in nodes:
        match node:
            case ast.Call(func=ast.Name("q"), args=[ast.Constant(str(name)), *_]):
                yield name
            case ast.Attribute(value=ast.Name("queries"), attr=name):
                yield name
            case ast.Constant(str(name)) if by_table:
                yield name


def is_lookup(function: ast.expr, arguments: list[ast.expr]) -> bool:
    return ast.unparse(function) == "q" and not isinstance(arguments[0], ast.Constant)


def all_queries() -> list[tuple[Path, str, str]]:
    return [
        (path, name, purpose)
        for path in sorted((STORE / "sql").glob("*.sql"))
        for name, purpose in named_queries(path.read_text(encoding="utf-8"))
    ]


def test_names_are_unique_identifiers() -> None:
    counts = Counter(name for _, name, _ in all_queries())
    assert {name for name, count in counts.items() if count > 1} == set()
    assert [name for name in counts if not re.fullmatch(r"[a-z][a-z0-9_]*", name)] == []


def test_every_query_states_its_purpose() -> None:
    missing = [f"{path.name}: {name}" for path, name, purpose in all_queries() if not re.match(r"-- \w", purpose)]
    assert missing == []


def test_every_part_is_in_more_than_one_query() -> None:
    texts = [path.read_text(encoding="utf-8") for path in sorted((STORE / "sql").glob("*.sql"))]
    parts = {name for text in texts for name in re.findall(r"^-- part: (\w+)$", text, re.MULTILINE)}
    uses = Counter(name for text in texts for name in re.findall(r"<<(\w+)>>", text))
    assert parts and parts == uses.keys() and min(uses.values()) > 1, uses


def test_every_query_has_exactly_one_calling_module() -> None:
    calls = {path.name: set(called(path.read_text(encoding="utf-8"))) for path in STORE.rglob("*.py")}
    wrong = {}
    for _, name, _ in all_queries():
        callers = [module for module, names in calls.items() if name in names]
        if len(callers) != 1:
            wrong[name] = callers
    assert wrong == {}


def test_the_reader_of_query_files_sees_names_and_purposes() -> None:
    sql = "-- name: fetch_job\n-- One job by id.\nSELECT 1;\n\n-- name: other\nSELECT 2;\n"
    assert named_queries(sql) == [("fetch_job", "-- One job by id."), ("other", "SELECT 2;")]


def test_the_reader_of_callers_sees_every_way_of_calling() -> None:
    assert set(called("queries.fetch_job(x); q('other'); self.claim; 'third'")) == {"fetch_job", "other"}
    assert set(called("for name in ('first', 'second'): q(name)")) == {"first", "second"}


def test_only_the_bus_and_the_transactions_of_clients_notify() -> None:
    """A NOTIFY in a durable transaction serializes all such commits of the cluster; statements return hints instead.

    Function `submit` runs in a transaction of the client: no process of Mainspring knows when that is committed.
    """
    texts = {path.name: path.read_text(encoding="utf-8").lower() for path in sorted(STORE.rglob("*.sql"))}
    found = {
        name: re.findall(r"\b(?:pg_notify|notify\s+\w)[^;]*", strip_comments(text)) for name, text in texts.items()
    }
    of_clients = ["pg_notify('mainspring_submissions', '')"]
    assert found.pop("schema.sql") == found.pop("0030_transactional_submissions.sql") == of_clients
    assert {name for name, calls in found.items() if calls} == {"bus.sql"}
    modules = {path.name for path in SOURCE.rglob("*.py") if "pg_notify" in path.read_text(encoding="utf-8").lower()}
    assert modules == set()


def strip_comments(sql: str) -> str:
    return re.sub(r"--.*", "", sql)
