"""Checks the house rules no linter knows: one word per concept, modules named by role, SQL only in store/,
tests that wait instead of sleeping, and nothing in the tree that names one machine.

Run as `python -m tools.source_rules`. A line that must break a word rule says why after `words: ok`.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tools.tree import ROOT, text_files


@dataclass(frozen=True)
class Finding:
    path: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


# What not to write, and what instead. A method of someone else's API (`transport.abort()`) is not ours.
WORDS = [
    (r"\bcancel(?:ed|ing)\b", "write cancelled, cancelling"),
    (r"(?<![.\w])abort(?:s|ed|ing)?\b", "an execution is cancelled; a transaction is rolled back"),
    (r"\brevok\w* (?:an? |the )?(?:job|execution|attempt)", "say cancel"),
    (r"\bkill\w* (?:an? |the )?(?:job|execution|attempt)", "say cancel; only processes are killed"),
    (r"\bstop(?:s|ped|ping)? (?:an? |the )?(?:job|execution|attempt)s?\b", "say cancel or pause"),
    (r"\bDLQ\b|dead[- ]letter queue", "say dead letters"),
    (r"\bredriv\w+", "say replay"),
    (r"\bexactly[- ]once execution", "a fire is decided exactly once; see the delivery modes for executions"),
    (r"\btask[ _]instance|\bjob[ _]instance|\bjob[ _]execution\b", "say execution"),
    (r"\bdag[ _]run", "say run"),
]
# Written so that no pattern matches its own text.
PLACES = [
    (r"(?<![\w.~-])/(?:work|root|home)/\w", "names a path of one machine"),
    (r"\bpypi\.org|\bpythonhosted\.\w|\bnpmjs\.\w|\bdebian\.org", "names a registry host"),
    (r"\bissue #?\d", "refers to a place the reader cannot see; say what it is about"),
]
_WORD_RULES = [(re.compile(pattern, re.IGNORECASE), advice) for pattern, advice in WORDS]
_PLACE_RULES = [(re.compile(pattern, re.IGNORECASE), advice) for pattern, advice in PLACES]
# The checks' own files speak of the words they forbid.
_SPEAKS_OF_WORDS = ("tools/source_rules.py", "tests/meta/")

_VAGUE_MODULE = re.compile(r"^_?(?:utils?|helpers?|common|base|misc|managers?|handlers?)$")
_VAGUE_CLASS = re.compile(r"(?:Manager|Helpers?|Handler|Utils?)$")
_SQL = re.compile(
    r"\b(?:SELECT\s.+\sFROM|INSERT\s+INTO|UPDATE\s+\w+\s+SET|DELETE\s+FROM|TRUNCATE\s+\w"
    r"|(?:CREATE|ALTER|DROP)\s+(?:TABLE|INDEX|DATABASE|ROLE|SCHEMA|FUNCTION|TYPE|VIEW)|SET\s+LOCAL)\b"
    r"|^\s*(?i:select\s+\w+\s*\(|select\s.+\sfrom\s|insert\s+into\s|update\s+\w+\s+set\s|delete\s+from\s|(?:un)?listen\s+\w|notify\s+\w)",
    re.DOTALL,
)
_SLEEPS = {"time.sleep", "asyncio.sleep", "anyio.sleep"}
_MAY_POLL = "tests/support/processes.py"  # `until` waits for processes that can't call us


def check_tree() -> Iterator[Finding]:
    for path in text_files():
        yield from check_text(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))


def check_text(path: str, text: str) -> Iterator[Finding]:
    """Every finding in one file, given by its path from the project's root and its content."""
    yield from _check_lines(path, text)
    if path.endswith(".py"):
        yield from _check_names(path)
        tree = ast.parse(text)
        if path.startswith("src/"):
            yield from _check_classes(path, tree)
            if "/store/" not in path:
                yield from _check_sql(path, tree)
        if path.startswith("tests/") and path != _MAY_POLL:
            yield from _check_sleeps(path, tree)


def _check_lines(path: str, text: str) -> Iterator[Finding]:
    rules = list(_PLACE_RULES)
    if not path.startswith(_SPEAKS_OF_WORDS):
        rules += _WORD_RULES
    for number, line in enumerate(text.splitlines(), start=1):
        for pattern, advice in rules:
            match = pattern.search(line)
            if match and "words: ok" not in line:
                yield Finding(path, number, f"{match[0]!r}: {advice}")


def _check_names(path: str) -> Iterator[Finding]:
    for part in Path(path).with_suffix("").parts:
        if _VAGUE_MODULE.match(part):
            yield Finding(path, 1, f"{part!r} says nothing about a role; name the module by what it does")


def _check_classes(path: str, tree: ast.Module) -> Iterator[Finding]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and _VAGUE_CLASS.search(node.name):
            yield Finding(path, node.lineno, f"class {node.name!r}: name it by its role")


def _check_sql(path: str, tree: ast.Module) -> Iterator[Finding]:
    prose = set(_docstrings(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in prose:
            match = _SQL.search(node.value)
            if match:
                yield Finding(path, node.lineno, f"SQL outside store/: {match[0][:30]!r}")


def _docstrings(tree: ast.Module) -> Iterator[ast.Constant]:
    """Strings that stand as statements: docstrings, and notes under an attribute."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield node.value


def _check_sleeps(path: str, tree: ast.Module) -> Iterator[Finding]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in _SLEEPS:
            passes_control = [ast.unparse(argument) for argument in node.args] == ["0"]
            if not passes_control:
                yield Finding(path, node.lineno, "tests wait for an event or a signal, never for time")


def main() -> int:
    findings = list(check_tree())
    for finding in findings:
        print(finding)
    print(f"{len(findings)} findings against the house rules." if findings else "House rules: all kept.")
    return bool(findings)


if __name__ == "__main__":
    sys.exit(main())
