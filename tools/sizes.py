"""Print the longest files and functions: `python -m tools.sizes`. A report, never a failure."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tools.tree import ROOT, SOURCE, python_files


def functions(source: str) -> Iterator[tuple[str, int]]:
    """Each function of a module with its length in lines."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, (node.end_lineno or node.lineno) - node.lineno + 1


def report(root: Path = SOURCE, longest: int = 10) -> str:
    texts = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in python_files(root)}
    files = sorted(((text.count("\n"), path) for path, text in texts.items()), reverse=True)
    parts = sorted(
        ((length, f"{path}: {name}") for path, text in texts.items() for name, length in functions(text)),
        reverse=True,
    )
    lengths = [length for length, _ in parts] or [0]
    lines = [f"{len(files)} files, {sum(length for length, _ in files)} lines; longest:"]
    lines += [f"  {length:>5}  {path}" for length, path in files[:longest]]
    lines += [f"{len(parts)} functions, 95 % of them within {lengths[len(lengths) // 20]} lines; longest:"]
    lines += [f"  {length:>5}  {name}" for length, name in parts[:longest]]
    return "\n".join(lines)


if __name__ == "__main__":
    print(report())
