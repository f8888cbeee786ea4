"""Dramatiq on Redis: two worker processes of eight threads (its default), no results."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from verbs import DSN, Client, Peer, main, record

broker = RedisBroker(url=DSN)
dramatiq.set_broker(broker)


@dramatiq.actor(max_retries=0)
def first_line(sent: float) -> None:
    at = time.time()
    record(sent, at)


def prepare() -> None:
    broker.client.ping()


def work(mode: str) -> None:
    folder = os.path.dirname(__file__)
    options = ["--processes", "2", "--threads", "8", "--path", folder, "--skip-logging"]
    os.execv(sys.executable, [sys.executable, "-m", "dramatiq", *options, "dramatiq_peer"])


@contextmanager
def connect(connections: int) -> Iterator[Client]:
    def many(count: int) -> None:
        for _ in range(count):
            first_line.send(time.time())

    yield Client(first_line.send, many)


if __name__ == "__main__":
    import dramatiq_peer  # the name by which a worker finds the function

    main(Peer(dramatiq_peer.prepare, dramatiq_peer.work, dramatiq_peer.connect))
