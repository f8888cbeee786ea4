"""Jobs of a shop, as a user of the testing kit would have them."""

from __future__ import annotations

from datetime import date
from typing import Any

import mainspring as ms

charged: list[str] = []
reported: list[date] = []


@ms.job(schedule="30 2 * * *", tz="Europe/Berlin")
def nightly(day: ms.FireDate) -> dict[str, Any]:
    reported.append(day)
    return {"day": day.isoformat()}


@ms.job(retries={"max": 3, "base": "10s", "jitter": "none"})
def charge(order: str, fail_times: int = 0) -> str:
    charged.append(order)
    if charged.count(order) <= fail_times:
        raise ConnectionError("the bank does not answer")
    return f"charged {order}"


@ms.job(retries={"max": 2, "base": "1s", "jitter": "none"})
def resume(stop_at: int) -> list[int]:
    """Continues where the attempt before stopped."""
    context = ms.context()
    first = (context.last_checkpoint or 0) + 1
    context.checkpoint(stop_at)
    if context.attempt == 1:
        raise RuntimeError("stopped")
    context.artifact("rows.txt", "1\n2\n")
    return [first, context.attempt]


@ms.job
def order(number: str) -> None:
    """Submits another job, later."""
    charge.submit(order=number, at="2026-11-16T18:00:00Z")


@ms.job
async def say_hello(name: str = "you") -> str:
    return f"hello {name}"
