"""The job of the two web shops beside this file: a receipt for an order. `mainspring worker -m shop_jobs` runs it."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import mainspring as ms

log = logging.getLogger("shop")


@dataclass
class Order:
    number: int
    address: str
    cents: int


@ms.job(retries=3, timeout="1m", concurrency={"key": "receipts", "limit": 10})
def send_receipt(order: Order) -> dict[str, str]:
    """Send the receipt of an order."""
    log.info("receipt for order %s", order.number)
    return {"to": order.address, "text": f"{order.cents / 100:.2f} EUR"}
