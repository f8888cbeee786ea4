"""http tasks against real sockets on loopback: requests, responses and refused addresses."""

from __future__ import annotations

import asyncio
import gzip
import json
import ssl
import zlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mainspring.domain.errors import Invalid
from mainspring.domain.task import HttpTask
from mainspring.worker.executors import Done, Work
from mainspring.worker.executors.http import MAX_KEPT_BYTES, HttpExecutor
from tests.support.attempts import attempt, host, written
from tests.support.certificates import make_certificate
from tests.support.http_receiver import Received, receiving, reply
from tests.support.processes import free_port

pytestmark = pytest.mark.anyio

LOOPBACK = ("127.0.0.0/8", "::1/128")


@asynccontextmanager
async def executor(allow_net: Sequence[str] = LOOPBACK) -> AsyncIterator[HttpExecutor]:
    made = HttpExecutor()
    await made.start(host(allow_net=allow_net))
    try:
        yield made
    finally:
        await made.stop()


async def call(work: Work, allow_net: Sequence[str] = LOOPBACK) -> Done:
    async with executor(allow_net) as made:
        return await asyncio.wait_for(made.execute(work), 30)


async def test_a_call_says_who_it_is_and_keeps_the_answer() -> None:
    def answer(_: Received) -> bytes:
        return reply("201 Created", b'{"id": 7, "tags": ["a"]}', content_type="application/json", x_other="no")

    async with receiving(answer) as server:
        body = {"day": "{{execution_date}}", "rows": "{{params.rows}}", "text": "rows: {{params.rows}}", "n": [1, None]}
        task = HttpTask(server.url("/hook?x={{params.who}}"), method="POST", headers={"X-Team": "{{job}}"}, body=body)
        work = attempt(task, {"rows": {"from": 1}, "who": "me"}, timezone="Europe/Berlin")
        done = await call(work)
    (got,) = server.got
    assert (done.outcome, done.result["status"]) == ("succeeded", 201)
    assert done.result["body"] == {"id": 7, "tags": ["a"]}
    assert done.result["headers"] == {"content-type": "application/json", "content-length": "24"}
    assert got.line == "POST /hook?x=me HTTP/1.1"
    assert json.loads(got.body) == {
        "day": "2026-11-15",
        "rows": {"from": 1},
        "text": 'rows: {"from":1}',
        "n": [1, None],
    }
    execution_id = str(work.assignment.execution_id)
    wanted = {
        "content-type": "application/json", "x-team": "the-job", "idempotency-key": execution_id,
        "mainspring-execution-id": execution_id, "mainspring-job": "the-job", "mainspring-attempt": "2",
        "mainspring-fire-at": "2026-11-14T23:30:00Z", "host": f"127.0.0.1:{server.port}",
    }  # fmt: skip
    assert wanted.items() <= got.headers.items()
    log = written(work, "system")
    assert log.startswith(f"POST {server.url('/hook?x=me')}\n201 Created · 24 bytes · ")


@pytest.mark.parametrize(
    ("status", "expect", "outcome"),
    [
        ("204 No Content", ("2xx",), "succeeded"),
        ("304 Not Modified", (200, "300-310"), "succeeded"),
        ("404 Not Found", ("2xx", 404), "succeeded"),
        ("500 Oops", ("2xx",), "failed"),
        ("301 Moved", ("2xx",), "failed"),
    ],
)
async def test_statuses_that_are_expected(status: str, expect: tuple[int | str, ...], outcome: str) -> None:
    async with receiving(lambda _: reply(status, location="/elsewhere")) as server:
        done = await call(attempt(HttpTask(server.url(), expect=expect)))
    assert (done.outcome, done.retry) == (outcome, True)
    assert done.result["status"] == int(status[:3]), "what came back is kept either way"
    if outcome == "failed":
        assert done.error == f"the response status was {status}, not 2xx"
    assert len(server.got) == 1


@pytest.mark.parametrize(
    ("body", "headers", "kept"),
    [
        (b"plain \xff text", {"content_type": "text/plain"}, "plain \ufffd text"),
        (b"", {}, None),
        (b'{"broken": ', {"content_type": "application/json"}, '{"broken": '),
        (b'"a\\u0000b"', {"content_type": "application/json"}, '"a\\u0000b"'),
        (b"a\0b", {"content_type": "text/plain"}, "a\ufffdb"),
        (b"[" * 40 + b"]" * 40, {"content_type": "application/json"}, "[" * 40 + "]" * 40),
    ],
)
async def test_a_body_that_is_no_json_is_text(body: bytes, headers: dict[str, str], kept: Any) -> None:
    async with receiving(lambda _: reply(body=body, **headers)) as server:
        done = await call(attempt(HttpTask(server.url())))
    assert (done.outcome, done.result["body"]) == ("succeeded", kept)


async def test_much_is_cut_and_too_much_is_refused() -> None:
    async with receiving(lambda _: reply(body=b"x" * 100_000)) as server:
        cut = await call(attempt(HttpTask(server.url())))
        refused = await call(attempt(HttpTask(server.url(), max_bytes=99_999)))
    assert (len(cut.result["body"]), cut.result["truncated"]) == (MAX_KEPT_BYTES, True)
    assert (refused.outcome, refused.retry) == ("failed", False)
    assert refused.error == "the response has more than 99,999 bytes (max_bytes)"


async def test_redirects_are_followed_if_asked_and_strangers_get_no_secrets() -> None:
    async with receiving(lambda got: reply(body=got.line.encode())) as other:

        def answer(got: Received) -> bytes:
            if " /start " in got.line:
                return reply("302 Found", location="/middle")
            return reply("307 Temporary Redirect", location=other.url("/end"))

        async with receiving(answer) as server:
            task = HttpTask(
                server.url("/start"), method="POST", body={"a": 1}, headers={"X-Key": "secret"}, follow_redirects=2
            )
            work = attempt(task)
            done = await call(work)
            few = await call(attempt(HttpTask(server.url("/start"), follow_redirects=1)))
    assert (done.outcome, done.result["redirects"], done.result["url"]) == ("succeeded", 2, other.url("/end"))
    assert [got.headers.get("x-key") for got in server.got[:2]] == ["secret", "secret"]
    assert "x-key" not in other.got[0].headers
    assert other.got[0].headers["idempotency-key"] == str(work.assignment.execution_id)
    assert (few.outcome, few.error) == ("failed", "more than 1 redirects")


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "2130706433", "0x7f.1", "0.0.0.0", "[::]"]
)
async def test_addresses_that_are_not_public_are_never_called(host: str) -> None:
    async with receiving(lambda _: reply()) as server:
        done = await call(attempt(HttpTask(server.url(host=host))), allow_net=())
    assert server.got == []
    assert (done.outcome, done.retry) == ("failed", False), "it is a mistake in the configuration, so no retries"
    assert done.error is not None and "are not allowed" in done.error and "--allow-net" in done.error


async def test_a_redirect_to_a_forbidden_address_is_refused() -> None:
    """Each hop is checked where the connection is made; allowing one address does not allow another."""
    async with receiving(lambda _: reply(body=b"metadata")) as inside:

        def answer(_: Received) -> bytes:
            return reply("302 Found", location=inside.url("/secret", host="localhost"))

        async with receiving(answer) as server:
            allowed = await call(attempt(HttpTask(server.url(), follow_redirects=3)))
            elsewhere = HttpTask(server.url(), follow_redirects=3)
            server.answer = lambda _: reply("302 Found", location="http://169.254.169.254/latest")
            refused = await call(attempt(elsewhere))
            server.answer = lambda _: reply("302 Found", location="file:///etc/passwd")
            other = await call(attempt(elsewhere))
    assert allowed.result["body"] == "metadata"
    assert (refused.outcome, refused.retry) == ("failed", False)
    assert refused.error is not None and "169.254.169.254 (link-local" in refused.error
    assert (other.outcome, other.retry) == ("failed", False)
    assert other.error is not None and "only http and https" in other.error


@pytest.mark.parametrize(
    ("url", "says", "retry"),
    [
        ("http://no-such-host.invalid/", "cannot resolve host 'no-such-host.invalid'", True),
        ("{{params.url}}", "only http and https can", False),
        ("http://{{params.user}}@127.0.0.1/", "use a header", False),
        ("http://127.0.0.1:{{params.user}}/", "is not a URL", False),
        ("http://{{params.host}}.example.org/", "is not a host", False),
        ("http://example.org{{params.host}}", "put a / after the host", False),
    ],
)
async def test_what_can_not_be_called_says_why(url: str, says: str, retry: bool) -> None:
    done = await call(attempt(HttpTask(url), {"url": "ftp://x@y z/", "user": "me:secret", "host": ".evil.com/?"}))
    assert (done.outcome, done.retry) == ("failed", retry)
    assert done.error is not None and says in done.error


async def test_a_port_where_nobody_listens_is_unreachable() -> None:
    port = free_port()
    done = await call(attempt(HttpTask(f"http://127.0.0.1:{port}/")))
    assert (done.outcome, done.retry) == ("failed", True)
    assert done.error is not None and done.error.startswith(f"cannot connect to 127.0.0.1:{port}")


async def test_a_connection_that_breaks_says_so() -> None:
    async with receiving(lambda _: b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc") as server:
        work = attempt(HttpTask(server.url()))
        async with executor() as made:
            running = asyncio.create_task(made.execute(work))
            await asyncio.wait_for(server.arrived.wait(), 10)
            work.request_stop("cancelled")
            done = await asyncio.wait_for(running, 10)
    assert done.outcome == "cancelled"
    async with receiving(lambda _: b"nonsense\r\n\r\n") as server:
        broken = await call(attempt(HttpTask(server.url())))
    assert (broken.outcome, broken.retry) == ("failed", True)


@pytest.mark.parametrize("how", ["cancelled", "timed_out", "task timeout"])
async def test_a_call_is_broken_off_when_its_time_is_over(how: str) -> None:
    async with receiving(lambda _: b"") as server, executor() as made:
        task = HttpTask(server.url(), timeout="100ms" if how == "task timeout" else None)
        work = attempt(task, timeout_s=0.1 if how == "timed_out" else 60)
        running = asyncio.create_task(made.execute(work))
        if how == "cancelled":
            await asyncio.wait_for(server.arrived.wait(), 10)
            work.request_stop("cancelled")
        done = await asyncio.wait_for(running, 10)
        if server.arrived.is_set():
            await asyncio.wait_for(server.hung_up.wait(), 10)
    wanted = "cancelled" if how == "cancelled" else "timed_out"
    assert (done.outcome, done.error) == (wanted, "cancelled" if how == "cancelled" else "timed out after 0.1 s")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_certificate(tmp_path_factory.mktemp("tls"))


async def test_tls_is_checked_against_the_name_in_the_url(
    certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection goes to an address, but the certificate must match the host name."""
    key, cert = certificate
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    async with receiving(lambda _: reply(body=b"safe"), tls=context) as server:
        named, other = server.url(host="localhost", scheme="https"), server.url(scheme="https")
        unknown = await call(attempt(HttpTask(named)))
        monkeypatch.setenv("SSL_CERT_FILE", str(cert))
        trusted = await call(attempt(HttpTask(named)))
        misnamed = await call(attempt(HttpTask(other)))
    assert unknown.error is not None and "TLS failed" in unknown.error and "self-signed" in unknown.error
    assert trusted.outcome == "succeeded" and trusted.result["body"] == "safe"
    assert server.got[0].headers["host"] == f"localhost:{server.port}"
    assert misnamed.error is not None and "TLS failed" in misnamed.error
    assert len(server.got) == 1


async def test_a_mistake_in_the_allowed_networks_is_told_at_the_start() -> None:
    with pytest.raises(Invalid, match=r"'10\.0\.0\.1/8' is not a network"):
        await HttpExecutor().start(host(allow_net=("10.0.0.1/8",)))


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("gzip", gzip.compress(b"hello")),
        ("deflate", zlib.compress(b"hello")),
        ("deflate", zlib.compress(b"hello")[2:-4]),
        ("identity", b"hello"),
        ("unknown", b"hello"),
    ],
    ids=["gzip", "deflate", "deflate without its header", "identity", "unknown"],
)
async def test_compressed_responses(encoding: str, body: bytes) -> None:
    async with receiving(lambda _: reply(body=body, content_encoding=encoding)) as server:
        done = await call(attempt(HttpTask(server.url())))
    assert (done.outcome, done.result["body"]) == ("succeeded", "hello")


async def test_a_compressed_response_that_is_too_large_or_broken() -> None:
    bomb = gzip.compress(bytes(50_000_000))
    async with receiving(lambda _: reply(body=bomb, content_encoding="gzip")) as server:
        large = await call(attempt(HttpTask(server.url(), max_bytes=1_000_000)))
        server.answer = lambda _: reply(body=b"no gzip", content_encoding="gzip")
        broken = await call(attempt(HttpTask(server.url())))
    assert large.error == "the response has more than 1,000,000 bytes (max_bytes)"
    assert broken.error is not None and broken.error.startswith("cannot decode the response: ")


@pytest.mark.parametrize(
    ("status", "method", "then"),
    [
        ("301 Moved", "POST", "GET"),
        ("302 Found", "POST", "GET"),
        ("302 Found", "PUT", "PUT"),
        ("303 See Other", "PUT", "GET"),
        ("307 Temporary Redirect", "POST", "POST"),
        ("308 Permanent Redirect", "POST", "POST"),
    ],
)
async def test_methods_of_redirects(status: str, method: Any, then: str) -> None:
    def answer(got: Received) -> bytes:
        return reply(status, location="../b?x=1#top") if " /dir/a" in got.line else reply(body=got.body)

    async with receiving(answer) as server:
        task = HttpTask(server.url("/dir/a"), method=method, body={"a": 1}, follow_redirects=1)
        done = await call(attempt(task))
    assert server.got[1].line == f"{then} /b?x=1 HTTP/1.1"
    assert server.got[1].body == (b"" if then == "GET" else b'{"a":1}')
    assert ("content-type" in server.got[1].headers) == (then != "GET")
    assert done.result["url"] == server.url("/b?x=1")


async def test_a_url_is_escaped_where_it_must_be() -> None:
    async with receiving(lambda _: reply()) as server:
        for path in ("/ä b/%2F?q=ü v&r=%20", "?q=1", ""):
            await call(attempt(HttpTask(server.url(path))))
    lines = [got.line for got in server.got]
    assert lines == ["GET /%C3%A4%20b/%2F?q=%C3%BC%20v&r=%20 HTTP/1.1", "GET /?q=1 HTTP/1.1", "GET / HTTP/1.1"]
