"""Huey on Redis: two worker processes, blocking reads, no results kept."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

from huey import RedisHuey
from verbs import DSN, Client, Peer, main, record

huey = RedisHuey("bench", url=DSN, results=False)


@huey.task()
def first_line(sent: float) -> None:
    at = time.time()
    record(sent, at)


def prepare() -> None:
    huey.storage.conn.ping()


def work(mode: str) -> None:
    logging.getLogger("huey").setLevel(logging.ERROR)
    huey.create_consumer(workers=2, worker_type="process", periodic=False).run()


@contextmanager
def connect(connections: int) -> Iterator[Client]:
    def many(count: int) -> None:
        for _ in range(count):
            first_line(time.time())

    yield Client(first_line, many)


if __name__ == "__main__":
    import huey_peer  # the name by which a worker finds the function

    main(Peer(huey_peer.prepare, huey_peer.work, huey_peer.connect))
