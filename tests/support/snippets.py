"""Code blocks of the documentation: found in a page, written to files, and run in order as one shell script.

A block is fenced. `title="jobs/report.py"` names the file that a reader would save it as; the other Python blocks are
programs, executed where they stand between the shell blocks. `skip="reason"` marks a block that cannot run here.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>[a-z]+)(?P<options>[^\n]*)\n(?P<body>.*?)^ *```$", re.M | re.S)
_OPTION = re.compile(r'(\w+)="([^"]*)"')


@dataclass(frozen=True)
class Snippet:
    """One fenced block of a page."""

    page: str
    line: int
    language: str
    text: str
    title: str | None = None
    skip: str | None = None

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def snippets(page: str, text: str) -> list[Snippet]:
    """The fenced blocks of a page, in order."""
    found = []
    for match in _FENCE.finditer(text):
        options = dict(_OPTION.findall(match["options"]))
        if unknown := options.keys() - {"title", "skip"}:
            raise ValueError(f"{page}: a block has the unknown options {', '.join(sorted(unknown))}")
        indent = match["indent"]
        body = "".join(line.removeprefix(indent) for line in match["body"].splitlines(keepends=True))
        line = text.count("\n", 0, match.start()) + 1
        found.append(Snippet(page, line, match["language"], body, options.get("title"), options.get("skip")))
    return found


def indented_blocks(text: str) -> list[int]:
    """Lines that begin a code block by indentation: the documentation has fenced blocks only."""
    found = []
    previous, fenced = "", False
    for number, line in enumerate(text.splitlines(), start=1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced and line.startswith("    ") and not previous.strip():
            found.append(number)
        previous = line
    return found


def write_files(blocks: list[Snippet], folder: Path) -> None:
    """Save the blocks that have a title under it."""
    for block in blocks:
        if block.title is not None and block.skip is None:
            path = folder / block.title
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text)


def script(blocks: list[Snippet], folder: Path) -> str:
    """A shell script that runs the blocks of a page in order and names the one that failed."""
    lines = ["set -euo pipefail", "trap 'echo \"failed: the block at $block\" >&2' ERR"]
    for number, block in enumerate(blocks):
        if block.skip is not None or block.title is not None:
            continue
        lines.append(f"block={shlex.quote(str(block))}")
        if block.language == "bash":
            lines.append(block.text)
        elif block.language == "python":
            program = folder / f"block_{number}.py"
            program.write_text(block.text)
            lines.append(f"python {shlex.quote(str(program))}")
    return "\n".join(lines)
