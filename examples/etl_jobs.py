"""The functions of etl.yaml; a worker loads them with: mainspring worker -m etl_jobs"""

from __future__ import annotations

import mainspring as ms


@ms.job
def extract(day: str) -> dict[str, list[str]]:
    """The parts that there are to load."""
    return {"parts": [f"{day}-{n}" for n in range(3)]}


@ms.job
def load(part: str) -> int:
    """How many rows a part had."""
    return len(part)


@ms.job
def check(counts: list[int]) -> dict[str, int]:
    return {"rows": sum(counts)}
