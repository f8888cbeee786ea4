"""Jobs for etl.yaml. A worker loads them with: mainspring worker -m etl_jobs"""

from __future__ import annotations

import mainspring as ms


@ms.job
def extract(day: str) -> dict[str, list[str]]:
    """List the parts of a day."""
    return {"parts": [f"{day}-{n}" for n in range(3)]}


@ms.job
def load(part: str) -> int:
    """Load a part and return its number of rows."""
    return len(part)


@ms.job
def check(counts: list[int]) -> dict[str, int]:
    """Add up the rows of all parts."""
    return {"rows": sum(counts)}
