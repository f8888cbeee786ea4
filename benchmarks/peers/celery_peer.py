"""Celery on Redis: two prefork processes, no results kept."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from celery import Celery, chain, chord
from verbs import DSN, Client, Peer, main, record

app = Celery("celery_peer", broker=DSN, backend=DSN)
app.conf.task_ignore_result = True


@app.task(name="first_line")
def first_line(sent: float) -> None:
    at = time.time()
    record(sent, at)


@app.task(name="nothing", ignore_result=False)  # a chord needs the results of its header
def nothing() -> None:
    return


def prepare() -> None:
    with app.connection_for_write() as connection:
        connection.ensure_connection(max_retries=3)


def work(mode: str) -> None:
    if mode == "drain":
        app.conf.worker_prefetch_multiplier = 64  # its documentation: 50 to 150 for many short tasks
    app.worker_main(["worker", "--concurrency", "2", "--loglevel", "ERROR", "--without-gossip", "--without-mingle"])


@contextmanager
def connect(connections: int) -> Iterator[Client]:
    def many(count: int) -> None:
        for _ in range(count):
            first_line.delay(time.time())

    def flow(kind: str, n: int, sent: float) -> None:
        if kind == "chain":
            chain(*[nothing.si() for _ in range(n - 1)], first_line.si(sent)).apply_async()
        else:
            chord([nothing.si() for _ in range(n)])(first_line.si(sent))

    yield Client(first_line.delay, many, flow)


if __name__ == "__main__":
    import celery_peer  # the name by which a worker finds the function

    main(Peer(celery_peer.prepare, celery_peer.work, celery_peer.connect))
