"""Writes docs/reliability.md and its timelines from the figures of a fault run: `python -m tools.reliability FILE`."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from html import escape
from pathlib import Path
from typing import Any

from tools.tree import ROOT

PAGE = ROOT / "docs" / "reliability.md"
PICTURES = ROOT / "docs" / "images" / "faults"
WIDTH, HEIGHT, LEFT, TOP = 720, 120, 44, 22

HEAD = """\
# Reliability

Figures of the fault tests at commit `{commit}`, {form}.

Each test starts real processes on a real PostgreSQL, breaks something, and compares every due instant with an
independent calculation. `tests/faults.toml` lists the faults; `make faults` writes this page, and `make faults F=F4`
repeats one.

A bar is one second of the run: its height is the start delay of the latest fire that was due in it.

"""

SEARCHES = """\
## Searches without a finding

- **A drain that did not end.** Once, a drain of Python functions with real-time priority did not end within 120 s. The
  cause was never found. `tests/worker/test_short_drains.py` pauses 15 % of all steps of every task in server and worker
  at random, and waits for a few functions again and again. 3,847 drains in 15 minutes on a busy machine (seed
  2057795754, 1,836 over a stream and 2,011 by polling) ended; no wake-up was lost.
- **Simulated clusters.** `make simulate SECONDS=600` ran 36 random seeds of 200 steps on the same busy machine:
  schedulers, api processes and workers in virtual time on a real PostgreSQL, with lost, repeated and delayed messages,
  pauses, crashes and lost answers to commits. Every guarantee held after every step. The same simulation finds each of
  the four bugs that `make teeth` plants for it.
"""


def slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def picture(title: str, timeline: list[list[float]]) -> str:
    """Draw the lateness by second as an SVG."""
    last = max((second for second, _, _ in timeline), default=0) + 1
    worst = max((late for _, _, late in timeline), default=0.0) or 1.0
    step = (WIDTH - LEFT - 8) / last
    bars = ""
    for second, fires, late in timeline:
        height = max(0.5, HEIGHT * late / worst)
        place = f'x="{LEFT + second * step:.1f}" y="{TOP + HEIGHT - height:.1f}"'
        size = f'width="{max(1.0, step - 1):.1f}" height="{height:.1f}"'
        bars += f"<rect {place} {size}><title>second {second}: {fires} fires, {late} s</title></rect>"
    text = f'<text x="{LEFT}" y="14">{escape(title)}: {last} s, latest {worst:.2f} s</text>'
    axis = f'<text x="{LEFT - 6}" y="{TOP + 10}" text-anchor="end">{worst:.1f} s</text>'
    base = f'<line x1="{LEFT}" y1="{TOP + HEIGHT}" x2="{WIDTH - 8}" y2="{TOP + HEIGHT}" stroke="#888"/>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {TOP + HEIGHT + 8}" font-family="sans-serif"'
        f' font-size="12" fill="#888">{text}{axis}{base}<g fill="#4a6fd0">{bars}</g></svg>\n'
    )


def section(run: dict[str, Any]) -> str:
    figures = run["figures"]
    rows = "".join(f"| {name} | {value} |\n" for name, value in figures.items() if value is not None)
    title = run["fault"]
    suffix = "".join(f" {key} {figures[key]}" for key in ("delay_ms",) if key in figures)
    image = ""
    if run["timeline"]:
        name = f"{slug(title + suffix)}.svg"
        (PICTURES / name).write_text(picture(title + suffix, run["timeline"]), encoding="utf-8")
        image = f"![Start delay by second](images/faults/{name})\n\n"
    heading = f"## {title[:1].upper()}{title[1:]}{suffix}"
    return f"{heading}\n\nSeed {run['seed']}.\n\n{image}| Figure | Value |\n|---|---|\n{rows}"


def main() -> int:
    path = Path(sys.argv[1])
    if not path.exists():
        print("no figures: the tests that ran record none")
        return 0
    runs = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    PICTURES.mkdir(parents=True, exist_ok=True)
    command = ["git", "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
    head = HEAD.format(form=" ".join(sys.argv[2:]) or "in their long form", commit=commit or "unknown")
    PAGE.write_text(head + "\n".join(map(section, runs)).rstrip() + f"\n\n{SEARCHES}", encoding="utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)} with {len(runs)} runs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
