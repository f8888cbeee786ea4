"""TLS, and proxies that the environment names."""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from mainspring.http_client import BlockingNetwork, ConnectFailed, HttpClient, InvalidRequest, Response, finish
from mainspring.http_client.request import split_url
from mainspring.http_client.route import route_to
from tests.support.certificates import make_certificate
from tests.support.http_receiver import receiving, reply

pytestmark = pytest.mark.anyio


class Proxy:
    """A forward proxy on loopback: absolute-form requests and CONNECT, with a password if one is set."""

    def __init__(self, password: str = "") -> None:
        self.lines: list[str] = []
        self.url = ""
        self._password = password

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            line, *headers = head.strip().split("\r\n")
            self.lines.append(line)
            expected = "Basic " + base64.b64encode(self._password.encode()).decode()
            if self._password and f"Proxy-Authorization: {expected}" not in headers:
                writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
                return
            method, target, _ = line.split()
            origin, _ = split_url(f"https://{target}" if method == "CONNECT" else target)
            upstream_reader, upstream = await asyncio.open_connection(origin.name, origin.port)
            if method == "CONNECT":
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                upstream.write(head.encode())
            await asyncio.gather(_copy(reader, upstream), _copy(upstream_reader, writer))
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()


@asynccontextmanager
async def proxying(password: str = "") -> AsyncIterator[Proxy]:
    proxy = Proxy(password)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        server.close()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def server_tls(certificate: tuple[Path, Path]) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate[1], certificate[0])
    return context


@pytest.fixture
def trusted(certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[1]))


@pytest.fixture(params=[False, True], ids=["async", "blocking"])
def blocking(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


async def get(url: str, path: str, blocking: bool, *, times: int = 1) -> Response:
    client = HttpClient(url, {"X": "y"}, network=BlockingNetwork() if blocking else None)
    try:
        found = []
        for _ in range(times):
            call = client.request("GET", path)
            found.append(await (asyncio.to_thread(finish, call) if blocking else call))
        return found[-1]
    finally:
        client.close()


@pytest.mark.usefixtures("trusted")
async def test_tls_with_the_certificates_of_the_environment(server_tls: ssl.SSLContext, blocking: bool) -> None:
    async with receiving(lambda _: reply(body=b"secret"), tls=server_tls) as server:
        found = await get(server.url("", host="localhost", scheme="https"), "/", blocking, times=3)
        assert (found.status, found.body) == (200, b"secret")
        assert server.got[0].headers["host"] == f"localhost:{server.port}"


async def test_an_unknown_certificate_is_refused(server_tls: ssl.SSLContext, blocking: bool) -> None:
    async with receiving(lambda _: reply(), tls=server_tls) as server:
        with pytest.raises(ConnectFailed, match="CERTIFICATE_VERIFY_FAILED"):
            await get(server.url("", host="localhost", scheme="https"), "/", blocking)
        assert not server.got


@pytest.mark.usefixtures("trusted")
async def test_a_certificate_for_another_name_is_refused(server_tls: ssl.SSLContext, blocking: bool) -> None:
    async with receiving(lambda _: reply(), tls=server_tls) as server:
        with pytest.raises(ConnectFailed, match="IP address mismatch"):
            await get(server.url("", scheme="https"), "/", blocking)
        assert not server.got


@pytest.mark.parametrize("password", ["", "user:p@ss"])
async def test_a_proxy_gets_whole_urls(password: str, blocking: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    async with receiving(lambda _: reply(body=b"ok")) as server, proxying(password) as proxy:
        credentials = "user:p%40ss@" if password else ""
        monkeypatch.setenv("HTTP_PROXY", proxy.url.replace("://", f"://{credentials}"))
        found = await get(server.url("/base"), "/x?y=1", blocking)
        assert found.body == b"ok"
        assert proxy.lines == [f"GET http://127.0.0.1:{server.port}/base/x?y=1 HTTP/1.1"]
        assert server.got[0].headers["host"] == f"127.0.0.1:{server.port}"


@pytest.mark.usefixtures("trusted")
@pytest.mark.parametrize("password", ["", "user:p@ss"])
async def test_a_proxy_tunnels_tls(
    password: str, server_tls: ssl.SSLContext, blocking: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with receiving(lambda _: reply(body=b"ok"), tls=server_tls) as server, proxying(password) as proxy:
        credentials = "user:p%40ss@" if password else ""
        monkeypatch.setenv("https_proxy", proxy.url.replace("://", f"://{credentials}"))
        found = await get(server.url("", host="localhost", scheme="https"), "/x", blocking, times=3)
        assert found.body == b"ok"
        assert proxy.lines == [f"CONNECT localhost:{server.port} HTTP/1.1"]
        assert server.got[0].line == "GET /x HTTP/1.1"
        assert "proxy-authorization" not in server.got[0].headers


@pytest.mark.usefixtures("trusted")
async def test_a_proxy_that_refuses(
    server_tls: ssl.SSLContext, blocking: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with receiving(lambda _: reply(), tls=server_tls) as server, proxying("user:other") as proxy:
        monkeypatch.setenv("ALL_PROXY", proxy.url)
        with pytest.raises(ConnectFailed, match="407 Proxy Authentication Required"):
            await get(server.url("", host="localhost", scheme="https"), "/x", blocking)


async def test_no_proxy(blocking: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    async with receiving(lambda _: reply(body=b"ok")) as server, proxying() as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        monkeypatch.setenv("NO_PROXY", "example.com, 127.0.0.1")
        assert (await get(server.url(), "/", blocking)).body == b"ok"
        assert not proxy.lines


@pytest.mark.parametrize(
    ("url", "env", "proxy"),
    [
        ("http://a.example", {}, None),
        ("http://a.example", {"http_proxy": "http://p:1"}, "p"),
        ("http://a.example", {"http_proxy": "p:1"}, "p"),
        ("http://a.example", {"HTTP_PROXY": "http://p:1"}, "p"),
        ("http://a.example", {"HTTP_PROXY": "http://p:1", "REQUEST_METHOD": "GET"}, None),
        ("https://a.example", {"http_proxy": "http://p:1"}, None),
        ("https://a.example", {"http_proxy": "http://p:1", "all_proxy": "http://q:1"}, "q"),
        ("http://a.example", {"http_proxy": "http://p:1", "no_proxy": "*"}, None),
        ("http://a.example", {"http_proxy": "http://p:1", "no_proxy": "a.example"}, None),
        ("http://a.example", {"http_proxy": "http://p:1", "no_proxy": ".EXAMPLE"}, None),
        ("http://a.example", {"http_proxy": "http://p:1", "no_proxy": "ample"}, "p"),
        ("http://a.example:81", {"http_proxy": "http://p:1", "no_proxy": "a.example:80"}, "p"),
        ("http://a.example:81", {"http_proxy": "http://p:1", "no_proxy": "a.example:81"}, None),
        ("http://10.1.2.3", {"http_proxy": "http://p:1", "no_proxy": "10.0.0.0/8"}, None),
        ("http://11.1.2.3", {"http_proxy": "http://p:1", "no_proxy": "10.0.0.0/8"}, "p"),
        ("http://[::1]:5", {"http_proxy": "http://p:1", "no_proxy": "[::1]:5"}, None),
    ],
)
def test_which_proxy(url: str, env: dict[str, str], proxy: str | None) -> None:
    origin, _ = split_url(url)
    route = route_to(origin, env=env)
    assert route.connect_to[0] == (proxy or origin.name)


@pytest.mark.parametrize("proxy", ["socks5://p:1", "https://p:1", "ftp://p", "http://"])
def test_a_proxy_that_is_not_supported(proxy: str) -> None:
    with pytest.raises(InvalidRequest, match=r"supported|invalid URL"):
        HttpClient("http://a.example", {}, env={"all_proxy": proxy})
