"""Writes docs/explanation/benchmarks.md and its plots from benchmarks/RESULTS.md: `python -m tools.benchmark_page`.

Nothing is measured here. A test compares the page with the results.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import escape
from pathlib import Path

from tools.tree import ROOT

RESULTS = ROOT / "benchmarks" / "RESULTS.md"
PAGE = ROOT / "docs" / "explanation" / "benchmarks.md"
PICTURES = ROOT / "docs" / "images" / "benchmarks"
OURS = "Mainspring"
WIDTH, ROW, LEFT, RIGHT = 720, 22, 170, 110
NOT_DURABLE = frozenset(("Huey", "Celery", "Dramatiq", "Asynq", "APScheduler, memory"))
"""Peers that may lose jobs that they have accepted, as they were configured: see the table of configurations."""
_NUMBER = re.compile(r"[\d,]*\.?\d+")

HEAD = """\
# Benchmarks beside other systems

`{command}` installs each system from its registry into an environment of its own and measures all
of them in turn, on one machine and one PostgreSQL with `fsync` and `synchronous_commit` on. This page is generated from
`benchmarks/RESULTS.md`.

- Machine: {machine}
- Commit: {commit}
{notes}

Read the figures with these differences in mind:

- Mainspring submits through an HTTP API that authenticates and validates. The peers insert from the client's own
  connection to the database or to Redis.
- Mainspring keeps a history of every execution. The table of configurations says which peers delete finished jobs.
- Systems marked with * keep jobs in Redis with its default snapshots, or in memory: they can lose accepted jobs.

"""


@dataclass(frozen=True)
class Figure:
    """What one system reached: the text of the table, and the number that a plot shows."""

    system: str
    text: str
    value: float


@dataclass(frozen=True)
class Workload:
    """One workload with the figures of the systems that can do it, in the order of the results."""

    name: str
    figures: tuple[Figure, ...]

    @property
    def more_is_better(self) -> bool:
        return "per second" in self.name

    @property
    def ahead(self) -> list[str]:
        """Durable peers with a better figure than ours."""
        ours = next(f.value for f in self.figures if f.system == OURS)
        sign = 1 if self.more_is_better else -1
        durable = [f for f in self.figures if f.system not in NOT_DURABLE]
        return [f.system for f in durable if sign * f.value > sign * ours]


def section(text: str, name: str) -> str:
    """Return one benchmark's section of the results."""
    found = re.search(rf"^## {re.escape(name)}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    if found is None:
        raise ValueError(f"benchmarks/RESULTS.md has no section {name}")
    return found[1]


def workloads(text: str) -> list[Workload]:
    """Return the workloads that Mainspring and at least one other system have done."""
    found: dict[str, list[Figure]] = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("| ") and len(cells) >= 3 and (number := _NUMBER.match(cells[2])):
            value = float(number[0].replace(",", ""))
            found.setdefault(cells[0], []).append(Figure(cells[1].strip("*"), cells[2], value))
    return [
        Workload(name, tuple(figures))
        for name, figures in found.items()
        if len(figures) > 1 and any(f.system == OURS for f in figures)
    ]


def picture(workload: Workload) -> str:
    """Draw the figures as bars; ours has the colour of the project."""
    longest = max(f.value for f in workload.figures) or 1.0
    rows = []
    for n, figure in enumerate(workload.figures):
        y = 24 + n * ROW
        width = max(1.0, (WIDTH - LEFT - RIGHT) * figure.value / longest)
        fill = "#4a6fd0" if figure.system == OURS else "#9aa5b8"
        rows.append(
            f'<text x="{LEFT - 8}" y="{y + 13}" text-anchor="end">{escape(shown(figure.system))}</text>'
            f'<rect x="{LEFT}" y="{y}" width="{width:.1f}" height="{ROW - 6}" fill="{fill}"/>'
            f'<text x="{LEFT + width + 6:.1f}" y="{y + 13}">{figure.value:,g}</text>'
        )
    better = "more is better" if workload.more_is_better else "less is better"
    title = f'<text x="0" y="14">{escape(workload.name.replace("`", ""))} ({better})</text>'
    height = 30 + len(rows) * ROW
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif"'
        f' font-size="12" fill="#888">{title}{"".join(rows)}</svg>\n'
    )


def shown(system: str) -> str:
    return f"{system}*" if system in NOT_DURABLE else system


def slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def part(workload: Workload) -> str:
    rows = "".join(f"| {shown(f.system)} | {f.text} |\n" for f in workload.figures)
    behind = f"\nAhead of Mainspring: {', '.join(workload.ahead)}.\n" if workload.ahead else ""
    image = f"../images/{PICTURES.name}/{slug(workload.name)}.svg"
    return (
        f"## {workload.name[0].upper()}{workload.name[1:]}\n\n![{workload.name}]({image})\n\n"
        f"| System | Measured |\n|---|---|\n{rows}{behind}\n"
    )


def fact(text: str, name: str) -> str:
    found = re.search(rf"^- {name}: (.*)$", text, re.MULTILINE)
    return found[1] if found else "unknown"


def pages(results: str) -> dict[Path, str]:
    """Return the page and its plots."""
    text = section(results, "interactive")
    found = workloads(text)
    notes = "\n".join(line for line in text.splitlines() if line.startswith("- ") and ":" not in line.split(" ")[1])
    head = HEAD.format(
        command=fact(text, "command").strip("`"),
        machine=fact(text, "machine"),
        commit=fact(text, "commit"),
        notes=notes,
    )
    configurations = text[text.index("| system | configuration |") :].strip()
    body = "".join(part(workload) for workload in found)
    tables = f"## Versions and configuration\n\n{configurations}\n"
    plots = {PICTURES / f"{slug(workload.name)}.svg": picture(workload) for workload in found}
    return {PAGE: head + body + tables, **plots}


if __name__ == "__main__":
    PICTURES.mkdir(parents=True, exist_ok=True)
    for path, content in pages(RESULTS.read_text(encoding="utf-8")).items():
        path.write_text(content, encoding="utf-8")
        print(f"wrote {path.relative_to(ROOT)}")
