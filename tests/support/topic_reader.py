"""Reads a topic as another program does, from its beginning, also after the broker lost it."""

from __future__ import annotations

import json
import threading
from typing import Any, Self

import confluent_kafka


class Tail:
    """What a topic has, read in a thread while the block runs."""

    def __init__(self, brokers: str, topic: str) -> None:
        self._brokers, self._topic = brokers, topic
        self.events: list[dict[str, Any]] = []
        self.keys: set[str] = set()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(10)

    def _run(self) -> None:
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self._brokers,
                "group.id": f"tail-{self._topic}",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "topic.metadata.refresh.interval.ms": 500,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
                "error_cb": lambda error: None,
            }
        )
        consumer.subscribe([self._topic])
        while not self._ended.is_set():
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                self.keys.add((message.key() or b"").decode())
                self.events.append(json.loads(message.value() or b"null"))
        consumer.close()
