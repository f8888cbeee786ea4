"""A scheduler process with a coordinator and a long lease: `python -m tests.support.coordinated_scheduler DSN URL`."""

from __future__ import annotations

import asyncio
import sys

from mainspring.backends.engines import open_coordinator
from mainspring.scheduler.service import Scheduler
from mainspring.store.bus import PostgresBus
from mainspring.store.db import Database

LEASE_S = 600.0


async def main(dsn: str, url: str) -> None:
    async with Database(dsn, size=4) as database:
        bus = PostgresBus(database)
        scheduler = Scheduler(database, bus, lease_s=LEASE_S, coordinator=open_coordinator(url, prefix="unused"))
        await bus.start()
        await bus.ready()
        await scheduler.start()
        await scheduler.ready()
        print("ready", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
