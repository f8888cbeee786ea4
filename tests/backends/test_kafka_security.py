"""TLS and SCRAM, against a real broker that accepts nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mainspring.backends.kafka_engines import open_events, open_results, open_topics
from mainspring.domain.errors import Invalid
from mainspring.domain.topic import Message, TopicSource
from tests.support.certificates import make_certificate
from tests.support.engine_servers import SecureKafkaServer
from tests.support.processes import until

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def secure(tmp_path_factory: pytest.TempPathFactory, anyio_backend: object) -> AsyncIterator[SecureKafkaServer]:
    server = SecureKafkaServer(tmp_path_factory.mktemp("secure") / "broker")
    await server.start()
    yield server
    server.kill()


async def test_events_and_triggers_with_tls_and_scram(secure: SecureKafkaServer) -> None:
    events = open_events(secure.url.replace("?", "/orders?"), prefix="test")
    topics = open_topics({"main": secure.url}, prefix="test")
    assert events is not None and topics is not None
    await events.start()
    await topics.start()
    read: list[Message] = []

    async def handle(messages: list[Message]) -> None:
        read.extend(messages)

    try:
        await events.publish([("job", b"{}")])
        source = TopicSource(cluster="main", topic="orders")
        reading = topics.open(source, group="one", since_ms=None, handle=handle)
        await until("the message to be read", lambda: bool(read), within_s=60)
        assert (read[0].key, read[0].value) == (b"job", b"{}")
        await reading.stop()
    finally:
        await events.stop()
        await topics.stop()


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        (("correct@", "wrong@"), "--events kafkas://localhost:.*SASL"),
        (("mainspring:", "stranger:"), "--events kafkas://localhost:.*SASL"),
        (("SCRAM-SHA-512", "PLAIN"), "--events kafkas://localhost:.*mechanism"),
        (("cert.pem", "absent.pem"), "--events kafkas://localhost:.*(ca|CA|certificate|location)"),
    ],
)
async def test_wrong_credentials_are_an_error_at_start(
    secure: SecureKafkaServer, wrong: tuple[str, str], problem: str
) -> None:
    events = open_events(secure.url.replace(*wrong), prefix="test")
    assert events is not None
    with pytest.raises(Invalid, match=problem) as raised:
        await events.start()
    assert "correct" not in str(raised.value)
    await events.engine.stop()


async def test_a_server_of_another_authority_is_an_error_at_start(secure: SecureKafkaServer, tmp_path: Path) -> None:
    _, certificate = make_certificate(tmp_path)
    stream = open_results(f"{secure.url.partition('&')[0]}&ca={certificate}", prefix="test")
    assert stream is not None
    with pytest.raises(Invalid, match=r"--results kafkas://localhost:.*(SSL|certificate)"):
        await stream.start()
    await stream.stop()
