"""Opens the engines on Kafka by their URLs. Its client library is imported only when one is configured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from mainspring.backends.engine_url import public_url
from mainspring.backends.kafka_url import read_address
from mainspring.domain.errors import Invalid
from mainspring.domain.topic import topic_problem

if TYPE_CHECKING:
    from mainspring.backends.kafka_events import KafkaEvents
    from mainspring.backends.kafka_queue import KafkaQueue
    from mainspring.backends.kafka_results import KafkaResults
    from mainspring.backends.kafka_topics import KafkaTopics


def open_results(url: str | None, *, prefix: str | None) -> KafkaResults | None:
    """Return the result stream of this URL; None: results are settled directly, and only there.

    A worker has no default for the prefix, because it does not know the database, and creates no topic.
    """
    if url is None:
        return None
    address = read_address(url, option="--results", prefix=prefix or "")
    if address.prefix == "-":
        shown = public_url(url)
        raise Invalid(f"--results {shown}: add the prefix of the server's topics, such as {shown}/mainspring-DATABASE")
    try:
        from mainspring.backends.kafka_results import KafkaResults
    except ImportError:
        raise _missing("--results", url) from None
    return KafkaResults(address, creates_topic=prefix is not None)


def open_events(url: str | None, *, prefix: str) -> KafkaEvents | None:
    """Return the event stream of this URL, whose path is the topic; None: events go to channels only."""
    if url is None:
        return None
    address = read_address(url, option="--events", prefix=f"{prefix}-events")
    topic = address.prefix.removesuffix("-")
    if (problem := topic_problem(topic)) is not None:
        raise Invalid(f"{address.shown}: {problem}")
    try:
        from mainspring.backends.kafka_events import KafkaEvents
    except ImportError:
        raise _missing("--events", url) from None
    return KafkaEvents(address, topic)


def open_queue(url: str | None, *, prefix: str) -> KafkaQueue | None:
    """Return the queue of this URL; None: executions are claimed from PostgreSQL only."""
    if url is None:
        return None
    address = read_address(url, option="--queue", prefix=prefix)
    try:
        from mainspring.backends.kafka_queue import KafkaQueue
    except ImportError:
        raise _missing("--queue", url) from None
    return KafkaQueue(address)


def open_topics(clusters: Mapping[str, str], *, prefix: str) -> KafkaTopics | None:
    """Return the clusters whose topics triggers may read; None: no trigger reads a topic."""
    if not clusters:
        return None
    addresses = {
        name: read_address(url, option=f"--kafka-triggers {name}", prefix=prefix) for name, url in clusters.items()
    }
    try:
        from mainspring.backends.kafka_topics import KafkaTopics
    except ImportError:
        raise _missing("--kafka-triggers", next(iter(clusters.values()))) from None
    return KafkaTopics(addresses)


def _missing(option: str, url: str) -> Invalid:
    return Invalid(f"{option} {public_url(url)} needs the extra `kafka`: pip install 'mainspring[kafka]'")
