"""An HTTP load generator in its own process: wrk if it is installed or its Debian package can be unpacked.

Without wrk, a small generator on raw sockets: `python benchmarks/load.py URL METHOD CONNECTIONS SECONDS TOKEN BODY`.
"""

from __future__ import annotations

import asyncio
import json
import os
import selectors
import socket
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from harness import quantile
from peers import install

SCRIPT = """wrk.method = "{method}"
wrk.headers["Authorization"] = "Bearer {token}"
wrk.headers["Content-Type"] = "application/json"
wrk.body = {body}
done = function(summary, latency, requests)
  local failed = summary.errors
  io.write(string.format('{{"n": %d, "s": %.6f, "p50": %.3f, "p99": %.3f, "failed": %d}}\\n', summary.requests,
    summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3,
    failed.connect + failed.read + failed.write + failed.status + failed.timeout))
end
"""


@dataclass(frozen=True)
class Load:
    """What a load generator measured."""

    per_s: float
    p50_ms: float
    p99_ms: float


def generator() -> str:
    """Return the name of the generator that `load` uses here."""
    try:
        install.program("wrk")
    except install.NotInstalled:
        return "raw sockets"
    return "wrk"


async def load(url: str, token: str, *, connections: int, seconds: float, method: str = "GET", body: str = "") -> Load:
    """Send requests as fast as they are answered; fail if one of them failed."""
    with tempfile.TemporaryDirectory() as folder:
        if generator() == "wrk":
            script = Path(folder) / "load.lua"
            script.write_text(SCRIPT.format(method=method, token=token, body=json.dumps(body) if body else "nil"))
            command, env = install.program("wrk")
            options = ["--threads", "1", "--connections", str(connections), "--duration", f"{max(1, round(seconds))}s"]
            command = [*command, *options, "--script", str(script), url]
        else:
            env = {}
            command = [sys.executable, __file__, url, method, str(connections), str(seconds), token, body]
        process = await asyncio.create_subprocess_exec(
            *command, env={**os.environ, **env}, stdout=asyncio.subprocess.PIPE, start_new_session=True
        )
        try:
            output, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
    found = json.loads(output.decode().strip().rpartition("\n")[2])
    if found["failed"] or not found["n"]:
        raise RuntimeError(f"{found['failed']} of {found['n']} requests to {url} failed")
    return Load(found["n"] / found["s"], found["p50"], found["p99"])


@dataclass
class Exchange:
    """One connection: a request is sent when the response to the previous one is complete."""

    sock: socket.socket
    request: bytes
    sent: float = 0.0
    received: bytearray = field(default_factory=bytearray)

    def send(self) -> None:
        self.sent = time.perf_counter()
        self.sock.sendall(self.request)

    def complete(self) -> int | None:
        """Read what there is; return the status once the response is complete."""
        part = self.sock.recv(262_144)
        if not part:
            raise ConnectionError("the server closed the connection")
        self.received += part
        end = self.received.find(b"\r\n\r\n")
        if end < 0:
            return None
        head = bytes(self.received[:end]).lower()
        length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
        if len(self.received) < end + 4 + length:
            return None
        self.received.clear()
        return int(head.split(b" ", 2)[1])


def raw(url: str, method: str, connections: int, seconds: float, token: str, body: str) -> dict[str, Any]:
    parts = urlsplit(url)
    content = body.encode()
    request = (
        f"{method} {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    ).encode() + content
    ready = selectors.DefaultSelector()
    assert parts.hostname and parts.port
    for _ in range(connections):
        sock = socket.create_connection((parts.hostname, parts.port))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        ready.register(sock, selectors.EVENT_READ, Exchange(sock, request))
    begun, took, failed = time.perf_counter(), [], 0
    for key in list(ready.get_map().values()):
        key.data.send()
    while time.perf_counter() - begun < seconds:
        for key, _ in ready.select(1):
            status = key.data.complete()
            if status is not None:
                took.append((time.perf_counter() - key.data.sent) * 1000)
                failed += status >= 400
                key.data.send()
    spent = time.perf_counter() - begun
    p50, p99 = (quantile(took, 0.5), quantile(took, 0.99)) if took else (0.0, 0.0)
    return {"n": len(took), "s": spent, "p50": p50, "p99": p99, "failed": failed}


if __name__ == "__main__":
    where, how, parallel, duration, secret, text = sys.argv[1:7]
    print(json.dumps(raw(where, how, int(parallel), float(duration), secret, text)))
