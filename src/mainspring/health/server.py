"""Serves /healthz and /readyz from a thread of its own, so that a stuck event loop is reported and not waited for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from mainspring import __version__
from mainspring.codec import encode
from mainspring.domain.errors import MainspringError
from mainspring.health.readiness import Readiness
from mainspring.service import Service

MAX_REQUESTS = 16
"""Requests at once; more are answered with 503."""
REQUEST_TIMEOUT_S = 5.0


class HealthPortTaken(MainspringError):
    code = "port_taken"


class HealthServer(Service):
    """Plain HTTP, without credentials: it shows what `/healthz` and `/readyz` of a server show.

    `metrics` returns the exposition of this process, for processes that have no other place to show it.
    """

    def __init__(
        self, readiness: Readiness, *, host: str, port: int, metrics: Callable[[], tuple[bytes, str]] | None = None
    ) -> None:
        self._readiness = readiness
        self._host, self._port = host, port
        self._metrics = metrics
        self._server: ThreadingHTTPServer | None = None

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.server_address[1])

    async def start(self) -> None:
        readiness, metrics, free = self._readiness, self._metrics, threading.Semaphore(MAX_REQUESTS)

        class Probe(_Probe):
            def do_GET(self) -> None:
                if not free.acquire(blocking=False):
                    self.answer(503, encode({"status": "unavailable", "checks": {"requests": "too many"}}))
                    return
                try:
                    self.route(readiness, metrics)
                finally:
                    free.release()

        try:
            self._server = ThreadingHTTPServer((self._host, self._port), Probe)
        except OSError as error:
            raise HealthPortTaken(
                f"cannot listen on {self._host}:{self._port}: {error.strerror}; choose another --health-port"
            ) from None
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, name="health", daemon=True).start()

    async def stop(self) -> None:
        if self._server is not None:
            threading.Thread(target=self._server.shutdown, daemon=True).start()  # it blocks until the thread has ended
            self._server.server_close()


class _Probe(BaseHTTPRequestHandler):
    timeout = REQUEST_TIMEOUT_S
    server_version, sys_version = "mainspring", ""

    def route(self, readiness: Readiness, metrics: Callable[[], tuple[bytes, str]] | None) -> None:
        match self.path.partition("?")[0]:
            case "/healthz":
                alive = readiness.is_alive()
                status = "ok" if alive else f"the event loop has had no turn for {readiness.stuck_s:.0f} s"
                self.answer(200 if alive else 503, encode({"status": status, "version": __version__}))
            case "/readyz":
                health = readiness.health_from_thread()
                self.answer(200 if health.status == "ok" else 503, encode(health))
            case "/metrics" if metrics is not None:
                body, media_type = metrics()
                self.answer(200, body, media_type)
            case _:
                self.answer(404, encode({"status": "not found", "paths": ["/healthz", "/readyz"]}))

    def answer(self, status: int, body: bytes, media_type: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("Content-Type", media_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        if status == 503:
            self.send_header("Retry-After", "1")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Probes are not logged."""
