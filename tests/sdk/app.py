"""Jobs of an application, which a worker of the tests loads."""

from __future__ import annotations

from dataclasses import dataclass

import mainspring as ms


@dataclass
class Total:
    cents: int
    currency: str = "EUR"


@dataclass
class Item:
    name: str
    cents: int


@ms.job(retries=0)
def add(items: list[Item], tax: int = 0) -> Total:
    return Total(sum(item.cents for item in items) + tax)


@ms.job(retries=0)
def plan(at: str, key: str, conn: int = 0) -> list[object]:
    """Has parameters with the names of the options."""
    return [at, key, conn]


@ms.job(retries=0)
def fail(message: str) -> None:
    raise ValueError(message)


@ms.job(retries=0)
async def greet(name: str, greeting: str = "hello") -> str:
    return f"{greeting}, {name}"


@ms.job(retries=0)
@dataclass
class Double:
    number: int

    async def __call__(self) -> int:
        return 2 * self.number
