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


def read_all(settings: dict[str, Any], prefix: str) -> dict[str, bytes]:
    """Every key, value and header of every topic with this prefix, by topic."""
    consumer = confluent_kafka.Consumer(settings | {"group.id": "read-all", "enable.auto.commit": False})
    try:
        found: dict[str, bytes] = {}
        ends: dict[tuple[str, int], int] = {}
        start = []
        for topic, known in consumer.list_topics(timeout=30).topics.items():
            if not topic.startswith(prefix):
                continue
            found[topic] = b""
            for number in known.partitions:
                low, high = consumer.get_watermark_offsets(confluent_kafka.TopicPartition(topic, number), timeout=30)
                if high > low:
                    ends[topic, number] = high
                    start.append(confluent_kafka.TopicPartition(topic, number, low))
        consumer.assign(start)
        while ends:
            message = consumer.poll(30)
            assert message is not None and message.error() is None, (ends, message and message.error())
            topic, number, offset = message.topic() or "", message.partition() or 0, message.offset() or 0
            parts = [message.key(), message.value(), *dict(message.headers() or ()).values()]
            found[topic] += b"".join(part + b"\n" for part in parts if isinstance(part, bytes))
            if offset + 1 >= ends.get((topic, number), 0):
                ends.pop((topic, number), None)
        return found
    finally:
        consumer.close()
