"""URLs of Kafka clusters, and the settings of clients that follow from them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from mainspring.backends.engine_url import public_url
from mainspring.domain.errors import Invalid

DEFAULT_PORT = 9092
MAX_PARTITIONS = 1024
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_FILES = {"ca": "ssl.ca.location", "cert": "ssl.certificate.location", "key": "ssl.key.location"}


@dataclass(frozen=True, slots=True)
class KafkaAddress:
    """A cluster, how to authenticate, and how topics are created there. `client` has librdkafka's settings."""

    url: str
    option: str
    client: dict[str, Any] = field(repr=False)
    prefix: str
    partitions: int | None
    replication: int

    @property
    def shown(self) -> str:
        return f"{self.option} {public_url(self.url)}"


def read_address(url: str, *, option: str, prefix: str) -> KafkaAddress:
    """Read `kafka://[USER:PASSWORD@]HOST[:PORT][,HOST...][/PREFIX][?...]`; `kafkas://` uses TLS."""
    parts = urlsplit(url)
    shown = f"{option} {public_url(url)}"
    if parts.scheme not in ("kafka", "kafkas"):
        raise Invalid(f"{shown}: unknown engine; use kafka://HOST:9092")
    credentials, _, hosts = parts.netloc.rpartition("@")
    brokers = [host if ":" in host else f"{host}:{DEFAULT_PORT}" for host in hosts.split(",") if host]
    if not brokers:
        raise Invalid(f"{shown}: no host; use kafka://HOST:9092")
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    secure = parts.scheme == "kafkas"
    client: dict[str, Any] = {
        "bootstrap.servers": ",".join(brokers),
        "client.id": "mainspring",
        "security.protocol": f"{'SASL_' if credentials else ''}{'SSL' if secure else 'PLAINTEXT'}",
        "log_level": 0,  # errors are reported by the engine's own log events
        "socket.timeout.ms": 10_000,
        "reconnect.backoff.max.ms": 1_000,
        "allow.auto.create.topics": False,
    }
    if credentials:
        user, _, password = credentials.partition(":")
        mechanism = query.pop("mechanism", "PLAIN").upper()
        if mechanism not in MECHANISMS:
            raise Invalid(f"{shown}: unknown mechanism {mechanism!r}; use one of {', '.join(MECHANISMS)}")
        client |= {"sasl.mechanism": mechanism, "sasl.username": unquote(user), "sasl.password": unquote(password)}
    for name, setting in _FILES.items():
        if name in query:
            if not secure:
                raise Invalid(f"{shown}: {name} needs TLS; use kafkas://")
            client[setting] = query.pop(name)
    partitions = _number(query.pop("partitions", None), "partitions", shown)
    replication = _number(query.pop("replication", None), "replication", shown)
    if query:
        raise Invalid(
            f"{shown}: unknown parameter {min(query)!r}; use mechanism, ca, cert, key, partitions, replication"
        )
    named = parts.path.strip("/") or prefix
    return KafkaAddress(url, option, client, f"{named}-", partitions, -1 if replication is None else replication)


def _number(text: str | None, name: str, shown: str) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 4 and 1 <= int(text) <= MAX_PARTITIONS):
        raise Invalid(f"{shown}: {name} must be 1 to {MAX_PARTITIONS} (got {text!r})")
    return int(text)
