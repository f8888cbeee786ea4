"""Mainspring's client, in a process of its own as those of the peers: `BENCH_DSN` is the URL of the API.

`BENCH_JOB` names the job that `bulk` submits.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from verbs import DSN, Client, Peer, main

from mainspring import wire
from mainspring.client import AsyncClient

TOKEN = os.environ.get("BENCH_TOKEN", "")
JOB = os.environ.get("BENCH_JOB", "nothing")


@asynccontextmanager
async def connect(connections: int) -> AsyncIterator[Client]:
    async with AsyncClient(DSN, TOKEN) as client:

        async def one(sent: float) -> None:
            await client.trigger("first_line", wire.RunNow(params={"sent": sent}))

        async def many(count: int) -> None:
            answer = await client.submit([wire.BatchItem(job=JOB)] * count)
            assert all(item.status == 201 for item in answer.items), answer.items[0]

        yield Client(one, many)


def no_verb(*_: str) -> None:
    raise SystemExit("this is a verb of `mainspring` itself")


if __name__ == "__main__":
    main(Peer(no_verb, no_verb, connect))
