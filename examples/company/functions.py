"""Functions of a shop, as jobs: progress, a result, a checkpoint, and an exception with a traceback."""

from __future__ import annotations

import time

import mainspring as ms

TEAM_DATA = {"labels": {"team": "data"}, "owner": "data@example.com"}
TEAM_FINANCE = {"labels": {"team": "finance"}, "owner": "finance@example.com"}
TEAM_SEARCH = {"labels": {"team": "search"}, "owner": "search@example.com"}
REGIONS = ("north", "south", "east", "west")


@ms.job(name="finance-exchange-rates", schedule="*/15 * * * *", metadata=TEAM_FINANCE, retries=2)
def exchange_rates() -> dict[str, float]:
    """Fetch the exchange rates of the day."""
    print("rates of 31 currencies")
    return {"USD": 1.08, "GBP": 0.85, "SEK": 11.42}


@ms.job(name="search-reindex", schedule="0 * * * *", metadata=TEAM_SEARCH, timeout="2h", queue="long")
def reindex(articles: int = 3000) -> int:
    """Rebuild the index, with progress; continues at its checkpoint after a crash."""
    for n in ms.track(range(articles), total=articles):
        if n % 100 == 0:
            print(f"indexed {n:,} of {articles:,} articles", flush=True)
        time.sleep(0.2)
    return articles


@ms.job(name="data-quality", schedule="50 * * * *", metadata=TEAM_DATA, retries=0)
def quality() -> None:
    """Check the tables of the last hour."""
    orders = [{"order": 100481, "customer_id": 7}, {"order": 100482}]
    print(f"checking {len(orders)} orders")
    for order in orders:
        _check(order)


def _check(order: dict[str, int]) -> None:
    if order["customer_id"] <= 0:
        raise ValueError(f"order {order['order']} has no customer")


@ms.job(name="data-regions", metadata=TEAM_DATA)
def regions() -> dict[str, list[str]]:
    """List the regions that have orders."""
    return {"regions": list(REGIONS)}


@ms.job(name="data-load", metadata=TEAM_DATA)
def load(region: str) -> int:
    """Load the orders of a region and return their number."""
    time.sleep(0.1)
    return 1000 + 37 * len(region)


@ms.job(name="data-check", metadata=TEAM_DATA)
def check(rows: list[int]) -> dict[str, int]:
    """Add up the rows of all regions."""
    return {"rows": sum(rows)}
