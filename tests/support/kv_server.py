"""A server with the documented endpoints of the KV version 2 engine of HashiCorp Vault and OpenBao, for tests.

It implements `GET /v1/{mount}/data/{path}` and the answers that the API documentation states for it: 200 with data and
metadata, 404 for nothing or a deleted version, 403 for a wrong token, a missing permission or another namespace, 503
while sealed. Run as a program, it serves until it is killed: `python -m tests.support.kv_server PORT STATE [CERT KEY]`.
STATE is a JSON file, read at each request: token, namespace, sealed, delay_s, and data by path.
"""

from __future__ import annotations

import json
import ssl
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

METADATA = {
    "created_time": "2026-01-01T00:00:00.000000000Z",
    "custom_metadata": None,
    "deletion_time": "",
    "destroyed": False,
    "version": 1,
}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    state_file: Path

    def do_GET(self) -> None:
        state = json.loads(self.state_file.read_text())
        with self.state_file.with_suffix(".requests").open("a") as log:
            log.write(f"{self.path}\n")
        if state.get("hangs"):
            threading.Event().wait(60)
        if state.get("sealed"):
            return self._answer(503, {"errors": ["Vault is sealed"]})
        if self.headers.get("X-Vault-Token") != state["token"]:
            return self._answer(403, {"errors": ["permission denied"]})
        if self.headers.get("X-Vault-Namespace") != state.get("namespace"):
            return self._answer(403, {"errors": ["permission denied"]})
        prefix = "/v1/secret/data/"
        path = unquote(self.path)
        if not path.startswith(prefix):
            return self._answer(404, {"errors": [f"no handler for route {path!r}"]})
        found = state["data"].get(path.removeprefix(prefix))
        if found is None:
            return self._answer(404, {"errors": []})
        if found == "deleted":
            deleted = METADATA | {"deletion_time": "2026-01-02T00:00:00Z"}
            return self._answer(404, {"data": {"data": None, "metadata": deleted}})
        return self._answer(200, {"request_id": "r", "lease_id": "", "data": {"data": found, "metadata": METADATA}})

    def _answer(self, status: int, content: Any) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def main(port: str, state: str, *tls: str) -> None:
    Handler.state_file = Path(state)
    server = ThreadingHTTPServer(("127.0.0.1", int(port)), Handler)
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*tls)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
