"""`mainspring apply` of many jobs, end to end: the program, a server with api and scheduler, and PostgreSQL.

Each round applies one file to the same jobs: creates them, finds nothing to do, changes one field of each, moves each
to another schedule, makes each need another, and removes these dependencies. A shared machine makes times longer but
not CPU seconds, so both are published. BENCH_WRITE=0 keeps RESULTS.md as it is.

    python benchmarks/apply.py
"""

from __future__ import annotations

import asyncio
import os
import resource
import sys
import tempfile
import time
from pathlib import Path

from harness import Machine, machine, publish

JOBS = int(os.environ.get("BENCH_JOBS", "10000"))
GOAL_S = 10.0
GROUP = 10
"""Jobs of which the first is needed by the others."""


def document(number: int, *, priority: int = 5, minute: int = 0, needs: bool = False) -> str:
    first = number - number % GROUP
    return (
        f"kind: Job\nmetadata: {{name: job-{number:05}, labels: {{team: t{number % 20}}}}}\nspec:\n"
        f"  shell: [./report.sh, --number, '{number}']\n"
        f"  schedule: {{cron: '{(number + minute) % 60} {number % 24} * * *', timezone: Europe/Berlin}}\n"
        f"  retries: {{max: 3, base: 10s}}\n  priority: {priority}\n"
        + (f"  needs: [job-{first:05}]\n" if needs and number != first else "")
    )


ROUNDS: dict[str, dict[str, int]] = {
    "create": {},
    "apply again, unchanged": {},
    "change a field": {"priority": 6},
    "change the schedule": {"priority": 6, "minute": 7},
    "add dependencies": {"priority": 6, "minute": 7, "needs": True},
    "remove dependencies": {"priority": 6, "minute": 7},
}


async def main() -> None:
    took: dict[str, float] = {}
    cpu: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(prefix="mainspring-apply-") as folder:
        async with machine(used=True) as found:
            found.serve("api", "scheduler")
            await found.until_ready()
            for name, fields in ROUNDS.items():
                file = Path(folder) / "jobs.yaml"
                file.write_text("---\n".join(document(number, **fields) for number in range(JOBS)))
                took[name], cpu[name] = await apply(found, file)
                sys.stdout.write(f"{name}: {took[name]:.1f} s\n")
                sys.stdout.flush()
    roles = list(cpu["create"])
    lines = [
        f"{JOBS:,} jobs in one file, applied with `mainspring apply --yes`; goal: {GOAL_S:g} s.",
        "",
        f"| | s | goal | {' | '.join(f'{role} CPU s' for role in roles)} |",
        f"|---|---|---|{'---|' * len(roles)}",
        *(
            f"| {name} | {took[name]:.1f} | {'met' if took[name] <= GOAL_S else 'missed'} | "
            + " | ".join(f"{cpu[name][role]:.1f}" for role in roles)
            + " |"
            for name in ROUNDS
        ),
    ]
    written = os.environ.get("BENCH_WRITE", "1") == "1"
    publish(
        "apply",
        lines,
        {name: {"s": round(took[name], 2), "cpu_s": round(sum(cpu[name].values()), 2)} for name in ROUNDS},
        written=written,
    )


async def apply(found: Machine, file: Path) -> tuple[float, dict[str, float]]:
    """Apply a file; return the seconds it took, and CPU seconds by process."""
    before, own = found.cpu_s(), resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.monotonic()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "mainspring.cli.main", "apply", str(file), "--yes", "-o", "json"),
        stdout=asyncio.subprocess.DEVNULL,
        env={**os.environ, "MAINSPRING_URL": found.url, "MAINSPRING_TOKEN": found.token},
    )
    if await process.wait() != 0:
        raise RuntimeError("apply failed")
    took, after, ended = time.monotonic() - began, found.cpu_s(), resource.getrusage(resource.RUSAGE_CHILDREN)
    used = {"program": ended.ru_utime + ended.ru_stime - own.ru_utime - own.ru_stime}
    return took, used | {"server": sum(after[r] - before[r] for r in after if r != "postgresql")} | {
        "postgresql": after["postgresql"] - before["postgresql"]
    }


if __name__ == "__main__":
    asyncio.run(main())
