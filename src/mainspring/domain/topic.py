"""Topics of message brokers as sources of triggers, and which of them a tenant may read. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec

from mainspring.domain.bounds import Duration, Name
from mainspring.domain.duration import parse_duration
from mainspring.domain.errors import Invalid, Problem, clipped
from mainspring.domain.watch import EVERY_TENANT

MAX_TOPIC_CHARS = 249
MAX_BATCH = 1_000
MIN_WITHIN_S, MAX_WITHIN_S = 0.1, 60.0
MAX_MESSAGE_BYTES = 256_000
"""Of one message; a larger one starts nothing."""
MAX_BATCH_BYTES = 1_000_000
"""Of all messages of a batch: a batch ends before the message that would exceed it."""
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}\Z")
_CLUSTER = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}\Z")
_RULE = re.compile(r"(?:(\*|[a-z0-9][a-z0-9_-]{0,62})=)?([a-z0-9][a-z0-9_-]{0,62})/([A-Za-z0-9._*-]{1,249})\Z")

Start = Literal["latest", "earliest"]


class TopicSource(msgspec.Struct, frozen=True, kw_only=True, tag="topic", tag_field="kind", forbid_unknown_fields=True):
    """A message of a topic. `cluster` is the name that the operator has given to a Kafka cluster.

    With `batch`, up to that many messages of a partition start one execution; a batch ends after `within`, too.
    `start`: `latest` begins with messages that are newer than the trigger, `earliest` with the oldest that is kept.
    """

    cluster: Name
    topic: Annotated[str, msgspec.Meta(max_length=MAX_TOPIC_CHARS)]
    batch: Annotated[int, msgspec.Meta(ge=1, le=MAX_BATCH)] = 1
    within: Duration = "1s"
    start: Start = "latest"

    @property
    def within_s(self) -> float:
        return parse_duration(self.within)

    @property
    def place(self) -> str:
        return f"{self.cluster}/{self.topic}"


@dataclass(frozen=True, slots=True)
class TopicRule:
    """Topics that triggers of one tenant, or of every one, may read. Without a tenant: the first one."""

    cluster: str
    pattern: str
    tenant: str | None = None

    def allows(self, source: TopicSource, *, tenant: str, is_first: bool) -> bool:
        if self.tenant != EVERY_TENANT and not (is_first if self.tenant is None else self.tenant == tenant):
            return False
        return self.cluster == source.cluster and matches(self.pattern, source.topic)


def matches(pattern: str, topic: str) -> bool:
    """Whether a topic matches a pattern, in which `*` stands for any characters. Takes linear time."""
    first, *rest = pattern.split("*")
    if not rest:
        return topic == first
    if not topic.startswith(first):
        return False
    at = len(first)
    for part in rest[:-1]:
        found = topic.find(part, at)
        if found < 0:
            return False
        at = found + len(part)
    return topic.endswith(rest[-1]) and len(topic) - len(rest[-1]) >= at


def topic_problem(name: str) -> str | None:
    """What is wrong with the name of a topic."""
    if not _TOPIC.match(name) or name in (".", ".."):
        limits = f"1 to {MAX_TOPIC_CHARS} letters, digits, '.', '_', '-'"
        return f"{clipped(name, 100)!r} is not a topic name: {limits}"
    return None


def topic_problems(source: TopicSource) -> list[Problem]:
    """What is wrong with a source, as far as the definition alone shows it."""
    found = []
    if not _CLUSTER.match(source.cluster):
        hint = "lower-case letters, digits, '_' and '-', as in --kafka-triggers"
        found.append(Problem("/source/cluster", f"{clipped(source.cluster, 100)!r} is not a cluster name", hint))
    if (problem := topic_problem(source.topic)) is not None:
        found.append(Problem("/source/topic", problem, "one topic, without patterns"))
    try:
        within_s = source.within_s
    except ValueError as error:
        return [*found, Problem("/source/within", str(error), "such as 1s")]
    if not MIN_WITHIN_S <= within_s <= MAX_WITHIN_S:
        limits = f"between {MIN_WITHIN_S:g} and {MAX_WITHIN_S:g} seconds"
        found.append(Problem("/source/within", f"{source.within!r} is out of range", limits))
    return found


def read_rules(texts: Iterable[str]) -> tuple[TopicRule, ...]:
    """Parse `CLUSTER/PATTERN` and `TENANT=CLUSTER/PATTERN`; the tenant `*` is every one."""
    found = []
    for text in texts:
        match = _RULE.match(text)
        if match is None:
            shown = clipped(text, 100)
            raise Invalid(f"--trigger-topic: {shown!r} is not [TENANT=]CLUSTER/PATTERN, such as main/orders.*")
        found.append(TopicRule(match[2], match[3], match[1]))
    return tuple(found)


def read_clusters(texts: Iterable[str]) -> dict[str, str]:
    """Parse `NAME=URL`: the URL of each cluster by its name."""
    found: dict[str, str] = {}
    for text in texts:
        name, _, url = text.partition("=")
        if not _CLUSTER.match(name) or "://" not in url:
            raise Invalid("--kafka-triggers: write NAME=kafka://HOST, with a name of lower-case letters and digits")
        if name in found:
            raise Invalid(f"--kafka-triggers: two clusters have the name {name!r}")
        found[name] = url
    return found


@dataclass(frozen=True, slots=True)
class Message:
    """A message as it was read. `topic_key` identifies the topic: its name, and the id that its cluster gave to it."""

    topic: str
    topic_key: str
    partition: int
    offset: int
    at: str
    key: bytes
    headers: dict[str, bytes]
    value: bytes

    @property
    def name(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"

    def values(self, body: Any) -> dict[str, Any]:
        """What conditions and templates can read of it."""
        headers = {_text(name): _text(value.decode("utf-8", "replace")) for name, value in self.headers.items()}
        return {
            "topic": self.topic,
            "partition": self.partition,
            "offset": self.offset,
            "at": self.at,
            "key": _text(self.key.decode("utf-8", "replace")),
            "headers": headers,
            "body": body,
        }


def _text(value: str) -> str:
    """PostgreSQL stores no NUL."""
    return value.replace("\0", "\ufffd")
