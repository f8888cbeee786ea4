"""TLS of the HTTP server: certificates that are loaded again when their files change, and client certificates."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

import structlog
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mainspring.domain.errors import Forbidden, Invalid

log = structlog.get_logger()

CHECK_S = 2.0
"""Between two looks at the files."""
HSTS = (b"strict-transport-security", b"max-age=31536000")


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files: the certificate with its chain, its key, and the authority of workers' certificates."""

    certificate: Path
    key: Path
    client_ca: Path | None = None


def tls_files(certificate: str | None, key: str | None, client_ca: str | None) -> TlsFiles | None:
    """Return the files that the configuration names; None: plain HTTP."""
    if certificate is None and key is None:
        if client_ca is not None:
            raise Invalid("--tls-client-ca needs --tls-cert and --tls-key")
        return None
    if certificate is None or key is None:
        raise Invalid("--tls-cert and --tls-key go together; give both")
    return TlsFiles(Path(certificate), Path(key), None if client_ca is None else Path(client_ca))


class ServerTls:
    """The context of all connections. New handshakes use a changed certificate; open connections stay."""

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self.context = _loaded(files)
        self._seen = self._stamps()

    def reload(self) -> bool:
        """Load changed files; return whether there were any. A key without its certificate is left for later."""
        stamps = self._stamps()
        if stamps == self._seen:
            return False
        try:
            _loaded(self._files)  # the live context would be left with half of a pair that does not match
            self.context.load_cert_chain(self._files.certificate, self._files.key)
            if self._files.client_ca is not None:
                self.context.load_verify_locations(self._files.client_ca)
        except Invalid as error:
            log.warning("tls.not_reloaded", error=error.message)
            return False
        self._seen = stamps
        log.info("tls.reloaded", certificate=str(self._files.certificate))
        return True

    def _stamps(self) -> list[tuple[int, int] | None]:
        found: list[tuple[int, int] | None] = []
        for path in (self._files.certificate, self._files.key, self._files.client_ca):
            try:
                found.append(None if path is None else (path.stat().st_mtime_ns, path.stat().st_ino))
            except OSError:
                found.append(None)
        return found


def _loaded(files: TlsFiles) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(files.certificate, files.key)
        if files.client_ca is not None:
            context.load_verify_locations(files.client_ca)
            context.verify_mode = ssl.CERT_OPTIONAL  # browsers and programs have tokens; workers must show one
    except (OSError, ssl.SSLError) as error:
        raise Invalid(f"cannot load the certificate {files.certificate} with the key {files.key}: {error}") from None
    return context


class StrictTransport:
    """ASGI middleware that makes browsers use nothing but HTTPS for this server from now on."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def add_and_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), HSTS]}
            await send(message)

        await self._app(scope, receive, add_and_send)


def require_client_certificate(request: Request) -> None:
    """Refuse a request whose connection has not shown a certificate of the configured authority."""
    connection = request.scope.get("connection")
    if connection is None or not connection.has_client_certificate:
        raise Forbidden(
            "this server demands a client certificate from workers; set MAINSPRING_TLS_CERT and MAINSPRING_TLS_KEY",
            code="client_certificate_needed",
        )
