"""DBOS: a workflow without steps on a queue; the queue is polled every 50 ms instead of every second."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from dbos import DBOS, DBOSClient, DBOSConfig
from verbs import DSN, Client, Peer, main, record

QUEUE = "bench"
VERSION = "bench"  # the client and the worker must agree


@DBOS.workflow(name="first_line")
def first_line(sent: float) -> None:
    at = time.time()
    record(sent, at)


@DBOS.step()
def step() -> None:
    return


@DBOS.step()
def last(sent: float) -> None:
    record(sent, time.time())


@DBOS.workflow(name="child")
def child() -> None:
    return


@DBOS.workflow(name="flow")
def flow(kind: str, n: int, sent: float) -> None:
    if kind == "chain":
        for _ in range(n - 1):
            step()
    else:
        for handle in [DBOS.start_workflow(child) for _ in range(n)]:
            handle.get_result()
    last(sent)


def launch() -> None:
    config: DBOSConfig = {
        "name": "bench",
        "system_database_url": DSN,
        "log_level": "ERROR",
        "application_version": VERSION,
    }
    DBOS(config=config)
    DBOS.launch()
    DBOS.register_queue(QUEUE, polling_interval_sec=0.05)


def prepare() -> None:
    launch()
    DBOS.destroy()


def work(mode: str) -> None:
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    launch()
    over.wait()
    DBOS.destroy()


@contextmanager
def connect(connections: int) -> Iterator[Client]:
    client = DBOSClient(system_database_url=DSN, system_database_pool_size=connections)

    def one(sent: float) -> None:
        client.enqueue({"workflow_name": "first_line", "queue_name": QUEUE, "app_version": VERSION}, sent)

    def many(count: int) -> None:
        for _ in range(count):
            one(time.time())

    def run_flow(kind: str, n: int, sent: float) -> None:
        client.enqueue({"workflow_name": "flow", "queue_name": QUEUE, "app_version": VERSION}, kind, n, sent)

    try:
        yield Client(one, many, run_flow)
    finally:
        client.destroy()


if __name__ == "__main__":
    main(Peer(prepare, work, connect))
