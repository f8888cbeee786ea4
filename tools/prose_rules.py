"""Checks that texts use the field's vocabulary: the word list is `tools/prose_words.txt`.

Run as `python -m tools.prose_rules [PATH...]`. In Python only docstrings, comments and string literals are read, in
Markdown everything but fenced code, in other files every line.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tools.source_rules import Finding
from tools.tree import ROOT, text_files

WORDS = Path(__file__).with_name("prose_words.txt")
_CHECKED = re.compile(
    r"(?:src/mainspring/(?!store/migrations/|web/static/assets/)|docs/(?!openapi\.json)|examples/)"
    r".*\.(?:py|sql|html|js|css|md|yaml|svg)$"
    r"|[A-Z]+\.md$|Makefile$"
)
_EXEMPT = "prose: ok"


_NAME_PREFIX = "name:"
_NAME_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


@dataclass(frozen=True)
class Rule:
    pattern: re.Pattern[str]
    advice: str
    for_names: bool = False


def rules(text: str) -> list[Rule]:
    """The rules of a word list: `pattern : advice` per line, `name: pattern : advice` for names, `#` for comments."""
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        pattern, colon, advice = line.partition(" : ")
        if not colon or not advice.strip():
            raise ValueError(f"line {number} of the word list: expected `pattern : advice`, got {line!r}")
        for_names = pattern.startswith(_NAME_PREFIX)
        words = pattern.removeprefix(_NAME_PREFIX).strip()
        found.append(Rule(re.compile(rf"\b(?:{words})\b", re.IGNORECASE), advice.strip(), for_names))
    return found


def check_tree(only: tuple[str, ...] = ()) -> Iterator[Finding]:
    words = rules(WORDS.read_text(encoding="utf-8"))
    for path in text_files():
        name = path.relative_to(ROOT).as_posix()
        if _CHECKED.fullmatch(name) and (not only or name.startswith(only)):
            yield from check_text(name, path.read_text(encoding="utf-8"), words)


def check_text(path: str, text: str, words: list[Rule]) -> Iterator[Finding]:
    """Every finding in one file, given by its path from the project's root and its content."""
    exempt = {number for number, line in enumerate(text.splitlines(), start=1) if _EXEMPT in line}
    for number, prose in _prose(path, text):
        if number in exempt:
            continue
        for rule in words:
            if not rule.for_names and (match := rule.pattern.search(prose)):
                yield Finding(path, number, f"{match[0]!r}: {rule.advice}")
    if path.endswith(".py"):
        yield from _check_names(path, text, [rule for rule in words if rule.for_names])


def _check_names(path: str, text: str, words: list[Rule]) -> Iterator[Finding]:
    for number, name in _names(path, text):
        parts = _NAME_WORDS.findall(name)
        for rule in words:
            if any(rule.pattern.fullmatch(part) for part in parts):
                yield Finding(path, number, f"{name!r}: {rule.advice}")


def _names(path: str, text: str) -> Iterator[tuple[int, str]]:
    """The module, and every class and function in it."""
    yield 1, Path(path).stem
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.lineno, node.name


def _prose(path: str, text: str) -> Iterator[tuple[int, str]]:
    if path.endswith(".py"):
        yield from _python_prose(text)
    elif path.endswith(".md"):
        yield from _markdown_prose(text)
    elif path.endswith(".sql"):
        yield from ((n, line[line.index("--") :]) for n, line in enumerate(text.splitlines(), 1) if "--" in line)
    else:
        yield from enumerate(text.splitlines(), start=1)


def _python_prose(text: str) -> Iterator[tuple[int, str]]:
    middle = getattr(tokenize, "FSTRING_MIDDLE", None)  # from Python 3.12 on, f-strings are split into tokens
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING) or (middle is not None and token.type == middle):
            yield from enumerate(token.string.splitlines(), start=token.start[0])


def _markdown_prose(text: str) -> Iterator[tuple[int, str]]:
    fenced = False
    for number, line in enumerate(text.splitlines(), start=1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced:
            yield number, line


def main(only: tuple[str, ...]) -> int:
    findings = list(check_tree(only))
    for finding in findings:
        print(finding)
    print(f"{len(findings)} findings against the word list." if findings else "Prose: no findings.")
    return bool(findings)


if __name__ == "__main__":
    sys.exit(main(tuple(sys.argv[1:])))
