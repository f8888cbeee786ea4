"""HTTPS, client certificates of workers, and a database over TLS with a verified name."""

from __future__ import annotations

import glob
import os
import shutil
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import anyio
import asyncpg
import httpx2
import pytest

from mainspring import wire
from mainspring.api.tls import ServerTls, TlsFiles, tls_files
from mainspring.client import AsyncClient
from mainspring.domain.errors import Invalid
from mainspring.embedded.server import EmbeddedServer
from mainspring.store.migrate import migrate
from mainspring.worker.transport.api_client import ApiAddress, ApiClient, Refused
from tests.conftest import Cluster, started
from tests.support.certificates import make_certificate
from tests.support.processes import until_async

pytestmark = pytest.mark.anyio


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a certificate that clients of this process trust."""
    make_certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert.pem"))
    return tmp_path


@asynccontextmanager
async def secured(url: str, folder: Path, **more: Any) -> AsyncIterator[Cluster]:
    files = {"tls_cert": str(folder / "cert.pem"), "tls_key": str(folder / "key.pem")}
    async with started(url, **files, **more) as cluster:
        port = urlsplit(cluster.url).port
        yield replace(cluster, url=f"https://localhost:{port}")


async def runs_a_job(cluster: Cluster, client: AsyncClient, name: str) -> bool:
    await client.create_job({"name": name, "task": {"kind": "shell", "argv": ["true"]}})
    made = await client.trigger(name)
    return (await client.wait(made.execution_id, timeout_s=60)).state == "succeeded"


@pytest.mark.requirement(141)
async def test_everything_works_over_https(database_url: str, folder: Path) -> None:
    async with secured(database_url, folder) as cluster, cluster.client() as client, cluster.worker():
        assert await runs_a_job(cluster, client, "over-tls")
        trusted = ssl.create_default_context(cafile=folder / "cert.pem")
        async with httpx2.AsyncClient(base_url=cluster.url, verify=trusted, trust_env=False) as http:
            response = await http.get("/healthz")
            assert response.headers["strict-transport-security"] == "max-age=31536000"
            page = await http.get("/login")
            assert "secure" in page.headers["set-cookie"].lower()
            api = await http.get("/api/v1/jobs", headers={"Authorization": f"Bearer {cluster.token}"})
            assert api.status_code == 200 and "strict-transport-security" in api.headers
        async with httpx2.AsyncClient(trust_env=False) as plain:
            with pytest.raises(httpx2.TransportError):
                await plain.get(cluster.url.replace("https", "http") + "/healthz")


async def presented(port: int, folder: Path) -> bytes:
    """The certificate that a new connection gets."""

    def connect() -> bytes:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with socket.create_connection(("127.0.0.1", port)) as plain, context.wrap_socket(plain) as secure:
            return secure.getpeercert(binary_form=True) or b""

    return await anyio.to_thread.run_sync(connect)


@pytest.mark.requirement(141)
async def test_a_changed_certificate_is_loaded_and_connections_stay(database_url: str, folder: Path) -> None:
    async with secured(database_url, folder) as cluster:
        port = urlsplit(cluster.url).port or 0
        first = await presented(port, folder)
        trusted = ssl.create_default_context(cafile=folder / "cert.pem")
        limits = httpx2.Limits(max_connections=1)
        async with httpx2.AsyncClient(base_url=cluster.url, verify=trusted, limits=limits, trust_env=False) as http:
            assert (await http.get("/healthz")).status_code == 200
            new = folder / "new"
            new.mkdir()
            make_certificate(new)
            shutil.move(new / "cert.pem", folder / "cert.pem")  # for a moment, the two files do not match
            assert cluster.server.http is not None and cluster.server.http._tls is not None
            assert not cluster.server.http._tls.reload()
            assert await presented(port, folder) == first
            shutil.move(new / "key.pem", folder / "key.pem")

            async def changed() -> bool:
                return await presented(port, folder) != first

            await until_async("the new certificate is used", changed, within_s=30)
            assert (await http.get("/healthz")).status_code == 200, "on the connection of before"


@pytest.mark.requirement(141)
async def test_workers_must_show_a_certificate(
    database_url: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ca = folder / "ca"
    ca.mkdir()
    make_certificate(ca)  # self-signed: its own authority
    async with secured(database_url, folder, tls_client_ca=str(ca / "cert.pem")) as cluster, cluster.client() as client:
        api = ApiClient(ApiAddress(cluster.url, cluster.worker_token))
        with pytest.raises(Refused, match="demands a client certificate"):
            await api.register(
                wire.Register(name="w", host="h", version="1", slots=1, queues=["short"], kinds=["shell"])
            )
        await api.close()
        monkeypatch.setenv("MAINSPRING_TLS_CERT", str(ca / "cert.pem"))
        monkeypatch.setenv("MAINSPRING_TLS_KEY", str(ca / "key.pem"))
        async with cluster.worker():
            assert await runs_a_job(cluster, client, "with-certificate")


def test_bad_files_are_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="go together"):
        tls_files("a", None, None)
    with pytest.raises(Invalid, match="needs --tls-cert"):
        tls_files(None, None, "a")
    with pytest.raises(Invalid, match="cannot load the certificate"):
        ServerTls(TlsFiles(folder / "none.pem", folder / "key.pem"))
    with pytest.raises(Invalid, match="cannot load the certificate"):
        ServerTls(TlsFiles(folder / "key.pem", folder / "cert.pem"))


def system_postgres() -> str:
    """The programs of a PostgreSQL that can speak TLS."""
    for path in sorted(glob.glob("/usr/lib/postgresql/*/bin"), reverse=True):
        if (Path(path) / "initdb").exists():
            return path
    pytest.skip("needs PostgreSQL packages of the system; the bundled one has no TLS")


def install(certificates: Path, data: Path) -> None:
    """Copy a certificate and its key to where PostgreSQL reads them, as its user."""
    owner = data.stat()
    for name in ("cert.pem", "key.pem"):
        shutil.copy(certificates / name, data / name)
        os.chown(data / name, owner.st_uid, owner.st_gid)
        (data / name).chmod(0o600)


@asynccontextmanager
async def tls_postgres(folder: Path, certificates: Path) -> AsyncIterator[tuple[str, str]]:
    """A bundled PostgreSQL with TLS: its password and its port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = EmbeddedServer(folder, port=port)
    await server.start()
    try:
        connection = await asyncpg.connect(server.superuser_dsn("postgres"))
        data = Path(await connection.fetchval("SHOW data_directory"))
        install(certificates, data)
        await connection.execute("ALTER SYSTEM SET ssl_cert_file = 'cert.pem'")
        await connection.execute("ALTER SYSTEM SET ssl_key_file = 'key.pem'")
        await connection.execute("ALTER SYSTEM SET ssl = on")
        await connection.execute("SELECT pg_reload_conf()")
        await connection.close()
        yield server.dsn, str(port)
    finally:
        await server.stop()


@pytest.mark.requirement(141)
@pytest.mark.slow
async def test_the_database_is_used_over_tls_with_a_verified_name(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the PostgreSQL of the system: the bundled one is built without TLS."""
    monkeypatch.setenv("MAINSPRING_PG_BIN", system_postgres())
    home = tmp_path / "pg"
    home.mkdir()
    async with tls_postgres(home, folder) as (dsn, port):
        parts = urlsplit(dsn)
        user = parts.username or parse_qs(parts.query).get("user", [""])[0]
        password = parts.password or parse_qs(parts.query).get("password", [""])[0]

        def url(host: str, root: Path, mode: str = "verify-full") -> str:
            path = parts.path or "/mainspring"
            return f"postgresql://{user}:{password}@{host}:{port}{path}?sslmode={mode}&sslrootcert={root}"

        async def connects() -> bool:
            try:
                await migrate(url("localhost", folder / "cert.pem"))
            except (OSError, asyncpg.PostgresError):
                return False
            return True

        await until_async("PostgreSQL offers TLS", connects, within_s=30)
        other = tmp_path / "other"
        other.mkdir()
        make_certificate(other)
        for wrong in (url("127.0.0.1", folder / "cert.pem"), url("localhost", other / "cert.pem")):
            with pytest.raises(ssl.SSLCertVerificationError):
                await migrate(wrong)
        async with started(url("localhost", folder / "cert.pem")) as cluster:
            async with cluster.client() as client, cluster.worker():
                assert await runs_a_job(cluster, client, "in-a-tls-database")
            async with cluster.database.connection() as connection:
                secure = await connection.fetch(
                    "SELECT s.ssl FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid)"
                    " WHERE a.application_name = 'mainspring'"
                )
            assert secure and all(row["ssl"] for row in secure), "every connection, LISTEN included"
