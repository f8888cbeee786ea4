"""`python -m tools.teeth [part of a name]`: plant each bug in a copy of the tree and run the tests that must catch it.

Bugs are planted one at a time. The last line is JSON: {"planted": N, "caught": N}. The results are also written to
docs/explanation/planted-bugs.md.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tools.teeth.planting import Bug, bugs, copy_tree, planted
from tools.tree import ROOT

PAGE = ROOT / "docs" / "explanation" / "planted-bugs.md"
LONGEST_S = 420
_FAILED = re.compile(r"^(?:FAILED|ERROR) ([^\s\[]+)", re.MULTILINE)

HEAD = """\
# Planted bugs

`make teeth` plants each of these bugs in a copy of the tree and runs the tests that must catch it. Each is a kind of
mistake that schedulers have shipped. The edits are in `tools/teeth/bugs.toml`; `make test` checks that they still fit.

| Bug | Caught by | Seconds |
|---|---|---|
"""


@dataclass(frozen=True)
class Outcome:
    """`by` is the first test that failed; None if the bug was not caught."""

    bug: Bug
    by: str | None
    seconds: float
    output: str


def run(bug: Bug, root: Path) -> Outcome:
    """Run the tests of a bug. A failing test catches it; an error of collection, or no test at all, does not."""
    environment = {
        **os.environ,
        "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}",
        "PYTHONDONTWRITEBYTECODE": "1",
        "TEST_SEED": os.environ.get("TEST_SEED", "1"),
    }
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--tb=line", *bug.tests]
    begun = time.monotonic()
    with planted(bug, root):
        try:
            done = subprocess.run(
                command, cwd=root, env=environment, capture_output=True, text=True, timeout=LONGEST_S, check=False
            )
        except subprocess.TimeoutExpired:
            return Outcome(bug, None, time.monotonic() - begun, f"no end within {LONGEST_S} s")
    seconds = time.monotonic() - begun
    failed = _FAILED.search(done.stdout)
    by = failed[1] if done.returncode == 1 and failed else None
    return Outcome(bug, by, seconds, done.stdout[-2000:] + done.stderr[-2000:])


def report(outcome: Outcome) -> None:
    verdict = f"caught by {outcome.by}" if outcome.by else "NOT CAUGHT"
    print(f"{outcome.seconds:6.1f} s  {outcome.bug.name}: {verdict}", flush=True)
    if outcome.by is None:
        print(outcome.output, flush=True)


def write_page(outcomes: list[Outcome]) -> None:
    """Write the rows of these bugs; rows of others stay, unless the bug is gone."""
    old = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    rows = {name: line for line, name in re.findall(r"^(\| ([^|]+?) \| .*)$", old, re.MULTILINE)}
    rows |= {
        o.bug.name: f"| {o.bug.name} | {f'`{o.by}`' if o.by else '**nothing**'} | {o.seconds:.0f} |" for o in outcomes
    }
    lines = [rows[bug.name] for bug in bugs() if bug.name in rows]
    caught = sum("**nothing**" not in line for line in lines)
    text = "\n".join([*lines, "", f"{caught} of {len(lines)} caught."])
    PAGE.write_text(f"{HEAD}{text}\n", encoding="utf-8")


def main() -> int:
    part = " ".join(sys.argv[1:])
    chosen = [bug for bug in bugs() if part in bug.name]
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="teeth-") as folder:
        copy_tree(Path(folder))
        for bug in chosen:
            outcomes.append(run(bug, Path(folder)))
            report(outcomes[-1])
            write_page(outcomes)
    caught = sum(o.by is not None for o in outcomes)
    print(json.dumps({"planted": len(outcomes), "caught": caught}))
    return 0 if caught == len(outcomes) and outcomes else 1


if __name__ == "__main__":
    sys.exit(main())
